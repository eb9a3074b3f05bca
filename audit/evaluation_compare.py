"""Two model versions on the same tasks: paired gain, flips by name, and what the arms were not matched on. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from audit.evaluation import Cell, Evaluation
from audit.evaluation_measures import passed, success
from audit.evaluation_spent import Spent
from audit.statistics import Estimate, Table
from audit.statistics.increments import increments
from audit.statistics.mcnemar import mcnemar
from audit.statistics.mean_difference_paired import mean_difference_paired
from audit.statistics.paired_bootstrap import paired_bootstrap
from ledger.errors import StatisticRefused, UnknownId
from ledger.evaluated import SlotLine

AXES = ("tasks", "updates", "rollouts", "tokens", "cpu_s")
"""What arms can be matched on; `tasks` alone says that nothing of their training was."""


@dataclass(frozen=True)
class Flip:
    """A pair that the two arms decide differently; the samples are slots of the task's groups."""

    task: str
    bundle_id: str
    seed: int
    sample: int
    gained: bool
    before_rollout_id: str
    after_rollout_id: str


@dataclass(frozen=True)
class Comparison:
    """`after` against `before` on one slice at one temperature, over all seeds that have both.

    Attributes:
        before, after: model versions, one a seed, in the same order.
        success_before, success_after: of all measured, paired or not.
        success_gain, reward_gain: over pairs; the success gain's interval is the wider of those that the seeds and tasks allow.
        gain, p_value: of McNemar's test.
        unpaired: slots that only one arm has measured.
        axis: what the arms were matched on.
        notes: what the arms differ in beside.
    """

    slice: str
    split: str
    temperature: float | None
    before: tuple[str, ...]
    after: tuple[str, ...]
    run_ids: tuple[str, ...]
    success_before: Estimate
    success_after: Estimate
    success_gain: Estimate
    reward_gain: Estimate
    gain: Estimate
    p_value: Estimate
    flips: tuple[Flip, ...]
    unpaired: int
    axis: str
    notes: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]

    @property
    def regressed(self) -> bool:
        """Whether the whole interval of the success gain lies below zero, or McNemar's test finds more lost than gained at the level.

        An interval without width is taken from pairs that all say the same, and decides nothing by itself.
        """
        level = self.success_gain.level or self.gain.level or 0.95
        tested = self.p_value.value is not None and self.p_value.value < 1 - level and (self.gain.value or 0.0) < 0
        return tested or (self.success_gain.width > 0 and self.success_gain.high is not None and self.success_gain.high < 0)


def compare(
    evaluation: Evaluation, pairs: Sequence[tuple[str, str]], *, axis: str = "tasks", spent: Mapping[str, Spent] | None = None
) -> tuple[Comparison, ...]:
    """One comparison for each slice, split and temperature at which every pair has cells.

    Args:
        evaluation: holds the cells of all versions.
        pairs: (before, after), one a seed; each version belongs to one run.
        axis: what the arms were matched on, one of `AXES`.
        spent: what the training of versions took, for the notes.
    Raises:
        StatisticRefused: no such axis, a version is paired with itself, or was measured twice in one place.
        UnknownId: no slice has both arms of every pair.
    """
    if axis not in AXES:
        raise StatisticRefused(f"axis is {axis!r}; allowed: {', '.join(AXES)}")
    if same := [before for before, after in pairs if before == after]:
        raise StatisticRefused(f"model version {same[0]} is compared with itself; allowed: two versions")
    measured = {version for pair in pairs for version in pair}
    cells = [cell for cell in evaluation.cells if cell.key.model_version in measured]
    sampled = [cell.key for cell in cells if cell.key.temperature is not None] or [cell.key for cell in cells]
    places = dict.fromkeys((key.slice, key.split, key.temperature) for key in sampled)
    found = []
    for place in places:
        arms = [_arms(cells, before, after, place) for before, after in pairs]
        whole = [arm for arm in arms if arm is not None]
        if whole and len(whole) == len(arms):
            found.append(_comparison(whole, axis, spent or {}, level=evaluation.question.level, draws=evaluation.question.draws))
    if not found:
        raise UnknownId(
            f"no slice and temperature has measured rollouts of both versions of every pair: {', '.join(map(' and '.join, pairs))}"
        )
    return tuple(found)


def gain_split(
    evaluation: Evaluation, chains: Sequence[Mapping[str, str]], *, slice: str, temperature: float | None
) -> tuple[Estimate, ...]:
    """The gain in success of training chains, split by stage: `total`, then each stage's part and share.

    Args:
        evaluation: holds the cells of all versions.
        chains: stage to model version in the order of training, `base` first, then `sft` and `rl`; one chain a seed.
        slice, temperature: where.
    Raises:
        StatisticRefused: the chain skips supervised training, or a version was not measured there.
    """
    rows = []
    for number, chain in enumerate(chains):
        for stage, version in chain.items():
            lines = [
                line
                for cell in evaluation.cells
                if (cell.key.model_version, cell.key.slice, cell.key.temperature) == (version, slice, temperature)
                for line in cell.measured
            ]
            if not lines:
                raise StatisticRefused(f"version {version} of stage {stage!r} has no measured rollout in slice {slice} at {temperature}")
            rows += [{"stage": stage, "value": passed(line), "task": line.bundle_id, "seed": number} for line in lines]
    table = Table.of(rows, ("stage", "value", "task", "seed"))
    return tuple(increments(table, axis="tasks", level=evaluation.question.level, draws=max(100, evaluation.question.draws)))


def _arms(cells: Sequence[Cell], before: str, after: str, place: tuple[str, str, float | None]) -> tuple[Cell, Cell] | None:
    """The cells of a pair at a slice, split and temperature; a policy that does not sample fits every temperature.

    They are of one run where both have one there, else of whichever runs measured them.

    Raises:
        StatisticRefused: a run measured a version under two policies there.
    """
    of: dict[str, dict[str, Cell]] = {before: {}, after: {}}
    for cell in cells:
        key = cell.key
        if key.model_version in of and (key.slice, key.split) == place[:2] and key.temperature in (place[2], None):
            if key.run_id in of[key.model_version]:
                names = of[key.model_version][key.run_id].key.policy, key.policy
                raise StatisticRefused(
                    f"version {key.model_version} was measured as policy {names[0]} and {names[1]}; allowed: one in a run"
                )
            of[key.model_version][key.run_id] = cell
    if not of[before] or not of[after]:
        return None
    shared = next((run_id for run_id in of[after] if run_id in of[before]), None)
    if shared is not None:
        return of[before][shared], of[after][shared]
    return next(iter(of[before].values())), next(iter(of[after].values()))


def _comparison(arms: Sequence[tuple[Cell, Cell]], axis: str, spent: Mapping[str, Spent], *, level: float, draws: int) -> Comparison:
    rows, flips, unpaired = list[dict[str, Any]](), list[Flip](), 0
    for number, (before, after) in enumerate(arms):
        mine, flipped, lone = _paired(before, after, number)
        rows, flips, unpaired = [*rows, *mine], [*flips, *flipped], unpaired + lone
    columns = ("before", "after", "task") if len(arms) == 1 else ("before", "after", "task", "seed")
    table, enough = Table.of(rows, columns), max(100, draws)
    rewards = Table.of([{**row, "before": row["reward_before"], "after": row["reward_after"]} for row in rows], columns)
    gain, p_value = mcnemar(table, axis=axis, level=level)
    seeds = {cell.key.run_id: cell.seed for pair in arms for cell in pair} if len(arms) > 1 else None
    sides = [success([line for pair in arms for line in pair[side].measured], level=level, draws=draws, seeds=seeds) for side in (0, 1)]
    key = arms[0][1].key
    temperature = next((cell.key.temperature for pair in arms for cell in pair if cell.key.temperature is not None), None)
    return Comparison(
        key.slice, key.split, temperature, tuple(b.key.model_version for b, _ in arms), tuple(a.key.model_version for _, a in arms),
        tuple(after.key.run_id for _, after in arms), sides[0], sides[1],
        replace(mean_difference_paired(table, axis=axis, level=level, draws=enough)[0], name="success_gain"),
        replace(paired_bootstrap(rewards, unit="reward", axis=axis, level=level, draws=enough)[0], name="reward_gain"),
        gain, p_value, tuple(flips), unpaired, axis, _notes(arms, axis, spent), tuple(rows),
    )  # fmt: skip


def _paired(before: Cell, after: Cell, number: int) -> tuple[list[dict[str, Any]], list[Flip], int]:
    """Pairs by task and sample, those that flipped, and how many slots only one side has."""
    left, right = ({(line.bundle_id, line.slot): line for line in _single_samples(cell)} for cell in (before, after))
    rows, flips = list[dict[str, Any]](), list[Flip]()
    for key in sorted(left.keys() & right.keys()):
        one, two = left[key], right[key]
        rows.append({
            "before": passed(one), "after": passed(two), "task": one.bundle_id, "seed": number, "name": one.bundle, "sample": key[1],
            "reward_before": one.reward, "reward_after": two.reward, "before_rollout": one.rollout_id, "after_rollout": two.rollout_id,
        })  # fmt: skip
        if passed(one) != passed(two):
            gained = passed(two) == 1
            flips.append(Flip(one.bundle, one.bundle_id, after.seed, key[1], gained, str(one.rollout_id), str(two.rollout_id)))
    return rows, flips, len(left.keys() ^ right.keys())


def _single_samples(cell: Cell) -> list[SlotLine]:
    """The measured lines with their samples numbered within the task, in order, whatever groups they came in."""
    seen: dict[str, int] = {}
    found = []
    for line in sorted(cell.lines, key=lambda line: (line.bundle_id, line.group_id, line.slot)):
        number = seen.get(line.bundle_id, 0)
        seen[line.bundle_id] = number + 1
        if line.rollout_id in cell.measured_ids:
            found.append(replace(line, slot=number))
    return found


def _notes(arms: Sequence[tuple[Cell, Cell]], axis: str, spent: Mapping[str, Spent]) -> tuple[str, ...]:
    notes = [
        f"the arms are matched on {axis}; the same number of updates is not the same compute, and neither is matched unless it is named"
    ]
    for before, after in arms:
        told = [(cell.key.model_version, spent.get(cell.key.model_version)) for cell in (before, after)]
        if all(item is not None for _, item in told):
            notes.append("; ".join(f"{version} took {item.in_words()}" for version, item in told if item is not None))
    if any(before.bundle_ids != after.bundle_ids for before, after in arms):
        notes.append("the arms were not measured on the same tasks everywhere; only pairs are compared")
    return tuple(notes)
