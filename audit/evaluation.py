"""Model versions measured from the recorded rollouts of runs: slots into cells, cells into estimates. Reads the ledger."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from audit.evaluation_measures import measures
from audit.statistics import Estimate
from ledger.errors import UnknownId
from ledger.evaluated import RunLine, SlotLine, attempted_bundles, provenances, published, runs, slots
from ledger.events import ModelVersionPublished
from ledger.ledger import LedgerHandle
from ledger.outcome import BROKEN, FAULTS, JUDGED
from ledger.queries import fresh

HELD_OUT = "held_out"
"""Slice of a validation or test bundle that nobody has put into a slice."""


@dataclass(frozen=True)
class Question:
    """What is to be measured.

    Attributes:
        run_ids: whose rollouts.
        model_versions: only these and the fixed rules; all when empty.
        slices: bundle id to slice, before what a bundle's provenance says in `slice`. A training bundle is measured only when it has one.
        slice, split, temperature: only these; None for all.
        masked: ids of rollouts left out of every number for a reason of their own, and counted.
        level: of all intervals.
        draws: bootstrap draws of the success rate.
    """

    run_ids: tuple[str, ...]
    model_versions: tuple[str, ...] = ()
    slices: Mapping[str, str] = field(default_factory=dict)
    slice: str | None = None
    split: str | None = None
    temperature: float | None = None
    masked: frozenset[str] = frozenset()
    level: float = 0.95
    draws: int = 2000


@dataclass(frozen=True)
class Counts:
    """Slots of a cell: expected = measured + masked + failed + omitted + unknown; unknown is what is left, never counted by itself.

    Attributes:
        expected: dispatched.
        measured: judged, so evidence about the policy.
        masked: left out by the question, or with a valid verdict that an audit says is no evidence about the policy.
        failures: outcome to number of those that something else broke.
        omitted: called off on purpose.
    """

    expected: int
    measured: int
    masked: int
    failures: Mapping[str, int]
    omitted: int

    @property
    def failed(self) -> int:
        """All that something else broke."""
        return sum(self.failures.values())

    @property
    def unknown(self) -> int:
        """What is left: never begun, still running, or ended without a verdict."""
        return self.expected - self.measured - self.masked - self.failed - self.omitted

    def as_json(self) -> dict[str, Any]:
        """All of them as a JSON object."""
        parts = {"expected": self.expected, "measured": self.measured, "masked": self.masked, "failed": self.failed}
        return {**parts, "omitted": self.omitted, "unknown": self.unknown, "failures": dict(self.failures)}


@dataclass(frozen=True, order=True)
class CellKey:
    """Which rollouts belong together: one run, slice, split, policy, model version and temperature (None where the policy has none)."""

    run_id: str
    slice: str
    split: str
    policy: str
    model_version: str
    temperature: float | None


@dataclass(frozen=True)
class Cell:
    """The slots of one key and what they come to.

    Attributes:
        scripted: a fixed rule and no learned policy.
        stage, round, step: where in its run the version was made; None where nobody said.
        measured: the lines that count.
        estimates: metric to estimate.
    """

    key: CellKey
    scripted: bool
    stage: str | None
    round: int | None
    step: int | None
    seed: int
    counts: Counts
    lines: tuple[SlotLine, ...]
    measured: tuple[SlotLine, ...]
    estimates: Mapping[str, Estimate]

    @cached_property
    def measured_ids(self) -> frozenset[str | None]:
        """Ids of the rollouts that count."""
        return frozenset(line.rollout_id for line in self.measured)

    @cached_property
    def bundle_ids(self) -> frozenset[str]:
        """Bundles with a measured rollout."""
        return frozenset(line.bundle_id for line in self.measured)


@dataclass(frozen=True)
class Evaluation:
    """All cells of a question.

    Attributes:
        position: up to which the ledger was read.
        unattributed: slots without any attempt whose model version nothing tells, by policy; they are in no cell.
        notes: what to know before the numbers are used.
    """

    question: Question
    position: int
    runs: tuple[RunLine, ...]
    cells: tuple[Cell, ...]
    unattributed: Mapping[str, int]
    notes: tuple[str, ...]

    def read_bundles(self, run_id: str) -> dict[str, list[str]]:
        """Split to the ids of its bundles of which a rollout was read, in one run."""
        found: dict[str, set[str]] = {}
        for cell in self.cells:
            if cell.key.run_id == run_id:
                found.setdefault(cell.key.split, set()).update(line.bundle_id for line in cell.lines)
        return {split: sorted(ids) for split, ids in sorted(found.items())}


def evaluate(ledger: LedgerHandle, question: Question) -> Evaluation:
    """Every cell of the question, measured from what is recorded up to now.

    Raises:
        UnknownId: no such run or model version, or nothing that the question asks for.
    """
    position = fresh(ledger)
    known = {run.run_id: run for run in runs(ledger)}
    if missing := [run_id for run_id in question.run_ids if run_id not in known]:
        raise UnknownId(f"no run {missing[0]!r} in project {ledger.project!r}; there are {', '.join(list(known)[-5:]) or 'none'}")
    versions = published(ledger)
    if missing := [version for version in question.model_versions if version not in versions]:
        raise UnknownId(f"no model version {missing[0]!r} in project {ledger.project!r}; newest: {', '.join(list(versions)[-5:])}")
    slice_of = sliced(ledger, question)
    found = slots(ledger, question.run_ids, list(slice_of))
    grouped, unattributed = _grouped(found, slice_of)
    cells = []
    for key, lines in grouped.items():
        version = versions.get(key.model_version)
        scripted = version is not None and version.scripted
        left_out = question.model_versions and key.model_version not in question.model_versions and not scripted
        wrong = question.temperature is not None and key.temperature not in (question.temperature, None)
        if not left_out and not wrong:
            cells.append(_cell(question, key, lines, version, known[key.run_id].root_seed))
    if not cells:
        raise UnknownId(f"no rollout of {', '.join(question.run_ids)} is at a bundle and by a model version that the question asks for")
    cells.sort(key=lambda cell: (cell.key.run_id, cell.key.slice, cell.key.split, cell.scripted, _order(cell)))
    told = tuple(known[run_id] for run_id in question.run_ids)
    return Evaluation(question, position, told, tuple(cells), unattributed, _notes(cells, unattributed))


def sliced(ledger: LedgerHandle, question: Question) -> dict[str, str]:
    """Bundle id to slice, of the bundles that the question is about."""
    found: dict[str, str] = {}
    attempted = attempted_bundles(ledger, question.run_ids)
    asked = [bundle_id for bundle_id, (split, _) in attempted.items() if question.split in (None, split)]
    said = provenances(ledger, [bundle_id for bundle_id in asked if bundle_id not in question.slices])
    for bundle_id in asked:
        split, _ = attempted[bundle_id]
        held_out = None if split == "train" else HELD_OUT
        name = question.slices.get(bundle_id) or said.get(bundle_id, {}).get("slice") or held_out
        if name is not None and question.slice in (None, name):
            found[bundle_id] = str(name)
    return found


def temperature_of(line: SlotLine) -> float | None:
    """The sampling temperature of an attempt; None for a policy that does not sample."""
    value = line.sampling.get("temperature")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _grouped(lines: Sequence[SlotLine], slice_of: Mapping[str, str]) -> tuple[dict[CellKey, list[SlotLine]], dict[str, int]]:
    """Slots by cell; one without an attempt belongs to the version and temperature of its group, else of its round and policy."""
    by_group: dict[str, set[tuple[str, float | None]]] = {}
    by_round: dict[tuple[str, int, str], set[tuple[str, float | None]]] = {}
    for line in lines:
        if line.model_version is not None:
            told = (line.model_version, temperature_of(line))
            by_group.setdefault(line.group_id, set()).add(told)
            by_round.setdefault((line.run_id, line.round, line.policy), set()).add(told)
    grouped: dict[CellKey, list[SlotLine]] = {}
    unattributed: Counter[str] = Counter()
    for line in lines:
        own = {(line.model_version, temperature_of(line))} if line.model_version is not None else set()
        told_by = own or by_group.get(line.group_id) or by_round.get((line.run_id, line.round, line.policy)) or set()
        if len(told_by) != 1:
            unattributed[line.policy] += 1
            continue
        version, temperature = next(iter(told_by))
        key = CellKey(line.run_id, slice_of[line.bundle_id], line.split, line.policy, str(version), temperature)
        grouped.setdefault(key, []).append(line)
    return grouped, dict(unattributed)


def _judged_in_vain(line: SlotLine) -> bool:
    """Whether there is a verdict that is no evidence about the policy, because an audit says so."""
    return line.passed is not None and line.outcome in (*BROKEN, "unknown")


def _cell(question: Question, key: CellKey, lines: Sequence[SlotLine], version: ModelVersionPublished | None, seed: int) -> Cell:
    shown = [line for line in lines if line.rollout_id not in question.masked and not _judged_in_vain(line)]
    measured = tuple(line for line in shown if line.outcome in JUDGED)
    omitted = sum(line.ended_by == "cancelled" for line in shown)
    failures = Counter(line.outcome for line in shown if line.outcome in FAULTS and line.ended_by != "cancelled")
    counts = Counts(
        len(lines), len(measured), len(lines) - len(shown), {name: failures[name] for name in FAULTS if failures[name]},
        omitted,
    )  # fmt: skip
    stage, number, step = (None, None, None) if version is None else (version.stage, version.round, version.step)
    return Cell(
        key, version is not None and version.scripted, stage, number, step, seed, counts, tuple(lines), measured,
        measures(shown, measured, expected=len(lines), level=question.level, draws=question.draws),
    )  # fmt: skip


def _order(cell: Cell) -> tuple[Any, ...]:
    step = -1 if cell.step is None else cell.step
    temperature = -1.0 if cell.key.temperature is None else cell.key.temperature
    return -temperature, step, cell.key.policy, cell.key.model_version


def _notes(cells: Sequence[Cell], unattributed: Mapping[str, int]) -> tuple[str, ...]:
    notes = [
        f"{count} slots of {policy} have no attempt, and nothing tells of which model version" for policy, count in unattributed.items()
    ]
    for cell in cells:
        if cell.scripted or not cell.bundle_ids:
            continue
        beside = [other for other in cells if other.scripted and (other.key.run_id, other.key.slice) == (cell.key.run_id, cell.key.slice)]
        if not beside:
            notes.append(f"no fixed rule was run on the tasks of slice {cell.key.slice}")
        for other in beside:
            if other.bundle_ids != cell.bundle_ids:
                apart = len(other.bundle_ids ^ cell.bundle_ids)
                notes.append(f"{other.key.policy} and {cell.key.model_version} differ in {apart} measured tasks of slice {cell.key.slice}")
    return tuple(dict.fromkeys(notes))
