"""Numbers that somebody states, and those measured here: recorded apart, joined side by side, never in one series. Writes the ledger."""

import json
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from audit.statements import Series, Statement, claimed_statement, measured_statement
from ledger.canonical import parse
from ledger.errors import CanonicalError, SettingsError, UnknownId
from ledger.evaluated import of_kind
from ledger.events import ClaimMade, EvaluationMeasured
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle

NOT_REPLICATED = "claimed, not replicated"
ATTACHED = "evaluation_id"
"""The setting of a claim that names the measurement which was made to replicate it."""


class ClaimDraft(BaseModel):
    """A claim as a file or a command states it; the fields are those of `ClaimMade`, the boundary in words.

    Attributes:
        settings: of the claimed measurement; the keys that checks read are listed in `docs/claims.md`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    subject: str = Field(min_length=1, max_length=200)
    metric: str = Field(min_length=1, max_length=200)
    value: float | None = Field(allow_inf_nan=False)
    low: float | None = Field(default=None, allow_inf_nan=False)
    high: float | None = Field(default=None, allow_inf_nan=False)
    unit: str = Field(default="", max_length=500)
    source: str = Field(min_length=1, max_length=500)
    stated_on: str = Field(default="", max_length=500)
    axis: Literal["updates", "tokens", "compute", "time", "money"] | None = None
    boundary: str = Field(min_length=1)
    settings: dict[str, int | float | str | None] = Field(default_factory=dict)
    replaces: str | None = None


@dataclass(frozen=True)
class Compared:
    """What is claimed of one thing and what was measured to replicate it, apart.

    Attributes:
        claimed: the claim that stands.
        measured: measurements that were attached to it; none until somebody attaches one.
    """

    claimed: Statement
    measured: tuple[Statement, ...]

    @property
    def status(self) -> str:
        """`claimed, not replicated`, or how many measurements are attached."""
        return (
            NOT_REPLICATED
            if not self.measured
            else f"measured here {len(self.measured)} times"
            if len(self.measured) > 1
            else "measured here"
        )


def drafts_in(path: Path) -> list[ClaimDraft]:
    """The claims of a TOML file (tables `[[claim]]`) or a JSON file (a list, or an object with the list `claim`).

    Raises:
        SettingsError: the file cannot be read, or a claim does not fit; nothing of the file is used.
    """
    try:
        text = path.read_text(encoding="utf-8")
        value: Any = parse(text.encode()) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, CanonicalError) as error:
        raise SettingsError(f"cannot read claims from {path}: {error}") from error
    listed = value.get("claim") if isinstance(value, dict) and set(value) == {"claim"} else value
    if not isinstance(listed, list) or not listed:
        raise SettingsError(f"{path} holds {json.dumps(value, default=str)[:80]}; allowed: one or more [[claim]], and nothing else")
    return [draft_of(item, f"claim {number} of {path.name}") for number, item in enumerate(listed, 1)]


def draft_of(item: Any, place: str) -> ClaimDraft:
    """A claim from its fields.

    Raises:
        SettingsError: a field is missing, unknown or does not fit.
    """
    try:
        return ClaimDraft.model_validate(item)
    except ValidationError as error:
        first = error.errors()[0]
        raise SettingsError(f"{place}: {'.'.join(map(str, first['loc'])) or 'it'} is {first['input']!r}: {first['msg']}") from error


def add(ledger: LedgerHandle, drafts: Sequence[ClaimDraft]) -> tuple[list[str], int]:
    """The ids of the claims, and how many of them were new; the same claim from the same source is one event.

    Raises:
        UnknownId: one replaces a claim that is not there; nothing is appended.
    """
    known = {statement.name for statement in claimed(ledger)}
    made: list[str] = []
    events = []
    for draft in drafts:
        if draft.replaces is not None and draft.replaces not in {*known, *made}:
            raise UnknownId(f"no claim {draft.replaces!r} in project {ledger.project!r} that could be replaced")
        boundary = ledger.pending(draft.boundary)
        fields = draft.model_dump(exclude={"boundary"})
        claim_id = derived_id("claim", ledger.ledger_id, ledger.project, json.dumps({**fields, "boundary": draft.boundary}, sort_keys=True))
        events.append(ledger.new(ClaimMade(claim_id=claim_id, boundary=boundary.ref, **fields), boundary))
        made.append(claim_id)
    return made, sum(item.created for item in ledger.append(events).events) if events else 0


def attach(ledger: LedgerHandle, claim_id: str, evaluation_id: str) -> str:
    """Id of the claim that takes the place of `claim_id` and names the measurement that was made to replicate it.

    Raises:
        UnknownId: there is no such claim or measurement, or another claim took its place.
    """
    found = next((statement for statement in standing(ledger) if statement.name == claim_id), None)
    if found is None:
        raise UnknownId(f"no claim {claim_id!r} in project {ledger.project!r} that stands")
    if not any(statement.name == evaluation_id for statement in measured(ledger)):
        raise UnknownId(f"no measurement {evaluation_id!r} in project {ledger.project!r}")
    ids = [*attached_ids(found), evaluation_id]
    draft = ClaimDraft(
        subject=found.about, metric=found.metric, value=found.value, low=found.low, high=found.high, unit=found.unit, source=found.source,
        stated_on=found.stated_on, axis=found.axis, boundary=found.boundary, replaces=claim_id,  # type: ignore[arg-type]
        settings={**found.settings, ATTACHED: ",".join(dict.fromkeys(ids))},
    )  # fmt: skip
    return add(ledger, [draft])[0][0]


def claimed(ledger: LedgerHandle) -> list[Statement]:
    """All claims of the project, oldest first."""
    return [
        claimed_statement(event.event_id, body, ledger.blob(body.boundary.blob_id).decode("utf-8", "backslashreplace"))
        for event in of_kind(ledger, "ClaimMade")
        if isinstance(body := event.body, ClaimMade)
    ]


def standing(ledger: LedgerHandle) -> list[Statement]:
    """The claims that no other one corrects, oldest first."""
    found = claimed(ledger)
    corrected = {statement.replaces for statement in found}
    return [statement for statement in found if statement.name not in corrected]


def measured(ledger: LedgerHandle) -> list[Statement]:
    """All measurements of the project, oldest first, each knowing the metrics of its card: of one run, version, slice and split."""
    bodies = [
        (event.event_id, body) for event in of_kind(ledger, "EvaluationMeasured") if isinstance(body := event.body, EvaluationMeasured)
    ]
    cards: dict[tuple[str, ...], set[str]] = {}
    for _, body in bodies:
        cards.setdefault(_card(body), set()).add(body.metric)
    return [replace(measured_statement(event_id, body), card=frozenset(cards[_card(body)])) for event_id, body in bodies]


def joined(claims: Iterable[Statement], measurements: Iterable[Statement]) -> list[Compared]:
    """Each claim beside the measurements that are attached to it, for a table or a figure."""
    by_id = {statement.name: statement for statement in measurements}
    return [Compared(claim, tuple(by_id[name] for name in attached_ids(claim) if name in by_id)) for claim in claims]


def series(statements: Iterable[Statement]) -> dict[tuple[Series, str, str, str], list[Statement]]:
    """Statements by what may be drawn as one line: claimed or measured, the metric, its unit and the axis that arms were matched on."""
    found: dict[tuple[Series, str, str, str], list[Statement]] = {}
    for one in statements:
        found.setdefault((one.series, one.metric, one.unit, one.axis or "not stated"), []).append(one)
    return found


def attached_ids(claim: Statement) -> list[str]:
    """Ids of the measurements that a claim names."""
    return [name for name in str(claim.settings.get(ATTACHED) or "").split(",") if name]


def _card(body: EvaluationMeasured) -> tuple[str, ...]:
    return (body.run_id, body.model_version, body.slice, body.split)
