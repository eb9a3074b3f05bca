"""What the training of a model version took, and the chains of versions that a run made, from its updates. Reads the ledger."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ledger.evaluated import RunLine, of_kind, published
from ledger.events import ModelVersionPublished, UpdateApplied
from ledger.ledger import LedgerHandle

STAGES: Mapping[str, str] = {"copy": "base", "supervised": "sft", "reinforce": "rl"}
"""Kind of a training stage to the part of the gain that it is responsible for."""
SUMMED = ("cpu_s", "trained_tokens", "tokens", "wall_s")
"""Counters of updates that add up."""


@dataclass(frozen=True)
class Spent:
    """Everything from the first version that no update here made.

    Attributes:
        updates: number of updates.
        rollouts: rollouts in their losses, each as often as it was used.
        counters: sums of those counters that the updates report; one that some of them lack is left out.
    """

    updates: int
    rollouts: int
    counters: Mapping[str, float] = field(default_factory=dict)

    def in_words(self) -> str:
        """All of it in a line."""
        if not self.updates:
            return "no update that is recorded"
        further = "".join(f", {value:g} {name}" for name, value in sorted(self.counters.items()))
        return f"{self.updates} updates, {self.rollouts} rollouts in the loss{further}"


def spent(ledger: LedgerHandle, versions: Sequence[str]) -> dict[str, Spent]:
    """Version to what led to it along its parents; a version that no update made took nothing that is known here."""
    steps: dict[str, list[UpdateApplied]] = {}
    for event in of_kind(ledger, "UpdateApplied"):
        body: Any = event.body
        if body.model_version_before != body.model_version_after:
            steps.setdefault(body.model_version_after, []).append(body)
    known = published(ledger)
    return {version: _spent(version, steps, known) for version in versions}


def chains(ledger: LedgerHandle, runs: Sequence[RunLine], measured: frozenset[str]) -> list[dict[str, str]]:
    """For each run that has them the last measured version of each kind of stage: base, sft and rl, in this order.

    A run whose file does not say what kind a stage is names the kind by the stage's own name. A run without a measured version of
    supervised training, or with nothing but one stage, has no chain.
    """
    known = published(ledger)
    found = list[dict[str, str]]()
    for run in runs:
        kinds = _kinds(run.config)
        last: dict[str, tuple[tuple[int, int], str]] = {}
        for order, (version, body) in enumerate(known.items()):
            if body.run_id != run.run_id or body.stage is None or version not in measured:
                continue
            part = STAGES.get(kinds.get(body.stage, body.stage), kinds.get(body.stage, body.stage))
            place = (-1 if body.step is None else body.step, order)
            if part not in last or last[part][0] < place:
                last[part] = (place, version)
        chain: dict[str, str] = {part: last[part][1] for part in ("base", "sft", "rl") if part in last}
        if len(chain) > 1 and "sft" in chain:
            found.append(chain)
    return found


def _kinds(config: Mapping[str, Any]) -> dict[str, str]:
    """Name to kind of the stages of an experiment's file."""
    stages = (config.get("train") or {}).get("stages") or ()
    return {str(stage.get("name", stage["stage"])): str(stage["stage"]) for stage in stages}


def _spent(version: str, steps: Mapping[str, Sequence[UpdateApplied]], known: Mapping[str, ModelVersionPublished]) -> Spent:
    updates = rollouts = 0
    sums: Counter[str] = Counter()
    reports: Counter[str] = Counter()
    at: str | None = version
    seen: set[str] = set()
    while at is not None and at not in seen:
        seen.add(at)
        parts = steps.get(at, [])
        for step in parts[:1]:
            updates += 1
            for name in SUMMED:
                if name in step.counters:
                    sums[name] += step.counters[name]  # type: ignore[assignment]
                    reports[name] += 1
        rollouts += sum(len(part.weights) for part in parts)
        at = parts[0].model_version_before if parts else (known[at].parent if at in known else None)
    return Spent(updates, rollouts, {name: float(value) for name, value in sums.items() if reports[name] == updates})
