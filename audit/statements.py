"""A stated number, claimed by somebody or measured here, as claim checks see it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from ledger.events import ClaimMade, EvaluationMeasured

Series = Literal["claimed", "measured"]
Setting = int | float | str | None


@dataclass(frozen=True)
class Statement:
    """One number with everything that is said of it.

    Attributes:
        series: claimed (somebody states it) or measured (recorded rollouts give it).
        name: id of the claim or of the evaluation.
        event_id: the event that states it.
        stream: the stream of that event.
        about: the system, model or version that it is about.
        metric, value, low, high, level, unit, axis: the number; None where it is not said.
        source: where it is stated; the run, of what is measured here.
        boundary: what it covers and what not, in the source's words.
        settings: of the measurement, by name.
        compared: whether it is a difference of two arms.
        card: metrics that are stated together with it.
        replaces: the claim that it corrects.
    """

    series: Series
    name: str
    event_id: str
    stream: str
    about: str
    metric: str
    value: float | None
    low: float | None
    high: float | None
    level: float | None
    unit: str
    axis: str | None
    source: str
    stated_on: str = ""
    boundary: str = ""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    compared: bool = False
    card: frozenset[str] = frozenset()
    replaces: str | None = None

    def number(self, key: str) -> float | None:
        """A setting as a number; None where it is missing or none."""
        value = self.settings.get(key)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def word(self, key: str) -> str | None:
        """A setting in small letters; None where it is missing."""
        value = self.settings.get(key)
        return None if value is None else str(value).strip().lower()

    def part(self, prefix: str) -> dict[str, Setting]:
        """The settings whose keys begin with `<prefix>.`, without it."""
        return {key.removeprefix(f"{prefix}."): value for key, value in self.settings.items() if key.startswith(f"{prefix}.")}

    @cached_property
    def arms(self) -> dict[str, dict[str, Setting]]:
        """Arm to its factors, of the settings `arm.<name>.<factor>`."""
        found: dict[str, dict[str, Setting]] = {}
        for key, value in self.part("arm").items():
            name, dot, factor = key.partition(".")
            if dot:
                found.setdefault(name, {})[factor] = value
        return found

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of the metric, in small letters."""
        return frozenset("".join(c if c.isalnum() or c == "@" else " " for c in self.metric.lower()).split())


def claimed_statement(event_id: str, body: ClaimMade, boundary: str) -> Statement:
    """A claim; the level of its interval is the setting `level`."""
    level = body.settings.get("level")
    return Statement(
        "claimed", body.claim_id, event_id, body.stream(), body.subject, body.metric, body.value, body.low, body.high,
        float(level) if isinstance(level, int | float) else None, body.unit, body.axis, body.source, body.stated_on, boundary,
        body.settings,
        compared=any(key.startswith("arm.") for key in body.settings) or body.settings.get("against") is not None,
        card=frozenset(str(body.settings.get("card") or "").replace(",", " ").split()), replaces=body.replaces,
    )  # fmt: skip


def measured_statement(event_id: str, body: EvaluationMeasured) -> Statement:
    """A measurement; its denominators, split and slice are among its settings."""
    counts = {name: getattr(body, name) for name in ("n", "expected", "measured", "masked", "failed", "omitted")}
    return Statement(
        "measured", body.evaluation_id, event_id, body.stream(), body.model_version, body.metric, body.value, body.low, body.high,
        body.level, "", body.axis, f"run {body.run_id}", boundary="; ".join(body.caveats),
        settings={**body.settings, **counts, "split": body.split, "slice": body.slice, "against": body.against},
        compared=body.against is not None,
    )  # fmt: skip
