"""Evaluation scores before and after changed verdicts, of every model version that they reach. Reads the ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from audit.counterfactual_changes import Changes, Judgement
from audit.evaluation import Cell, Question, evaluate
from audit.evaluation_measures import success
from audit.statistics import Estimate
from ledger.errors import UnknownId
from ledger.evaluated import SlotLine, runs
from ledger.ledger import LedgerHandle
from ledger.outcome import FAULTS, JUDGED

LEVEL, DRAWS = 0.95, 500


@dataclass(frozen=True)
class ScoreChange:
    """The success rate of one cell before and after.

    Attributes:
        cell: run, slice, split, policy, model version and temperature.
        expected: slots that were dispatched.
        before, after: over the measured rollouts of each, which can be others: a verdict that is gone measures nothing.
        touched: measured or broken rollouts with a changed verdict.
        failed_before, failed_after: slots that something else than the policy broke.
    """

    cell: Mapping[str, Any]
    expected: int
    before: Estimate
    after: Estimate
    touched: int
    failed_before: int
    failed_after: int

    def as_json(self) -> dict[str, Any]:
        """The change as a JSON object, with both denominators."""
        of_expected = [None if e.value is None else e.value * e.n / self.expected for e in (self.before, self.after)]
        return {
            **self.cell, "expected": self.expected, "touched": self.touched,
            "before": {**self.before.as_json(), "of_expected": of_expected[0], "failed": self.failed_before},
            "after": {**self.after.as_json(), "of_expected": of_expected[1], "failed": self.failed_after},
        }  # fmt: skip


@dataclass(frozen=True)
class Scores:
    """Changed scores, and rollouts of the test split that were left unread because every read of it is recorded."""

    changed: tuple[ScoreChange, ...]
    test_rollouts: int


def scores(ledger: LedgerHandle, changes: Changes) -> Scores:
    """The cells of evaluated model versions in which a verdict changes."""
    found, test = list[ScoreChange](), 0
    for run in runs(ledger):
        for cell in _cells(ledger, run.run_id):
            touched = sum(line.rollout_id in changes.by_rollout for line in cell.lines)
            if not touched:
                continue
            if cell.key.split == "test":
                test += touched
                continue
            found.append(_changed(cell, changes, touched))
    return Scores(tuple(found), test)


def _cells(ledger: LedgerHandle, run_id: str) -> tuple[Cell, ...]:
    """The cells of a run; none where it has nothing that an evaluation measures."""
    try:
        return evaluate(ledger, Question((run_id,), level=LEVEL, draws=DRAWS)).cells
    except UnknownId:
        return ()


def _changed(cell: Cell, changes: Changes, touched: int) -> ScoreChange:
    sides = []
    for side in ("old", "new"):
        lines = [_judged(line, changes, side) for line in cell.lines]
        sides.append((success(_measured(lines), level=LEVEL, draws=DRAWS), sum(line.outcome in FAULTS for line in lines)))
    (before, failed_before), (after, failed_after) = sides
    return ScoreChange(vars(cell.key), cell.counts.expected, before, after, touched, failed_before, failed_after)


def _judged(line: SlotLine, changes: Changes, side: str) -> SlotLine:
    change = changes.by_rollout.get(line.rollout_id or "")
    if change is None or line.ended_by is None:
        return line
    judgement: Judgement = getattr(change, side)
    return replace(line, outcome=judgement.outcome(line.ended_by), passed=judgement.passed, conditions=judgement.conditions)


def _measured(lines: Sequence[SlotLine]) -> list[SlotLine]:
    return [line for line in lines if line.outcome in JUDGED]
