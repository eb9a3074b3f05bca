"""Measurements and comparisons as events, and the record of who read which split. Writes the ledger."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from audit.evaluation import Counts, Evaluation
from audit.evaluation_compare import Comparison
from audit.evaluation_measures import passed
from audit.statistics import Estimate
from ledger.blobs import Pending
from ledger.canonical import digest
from ledger.errors import UnknownId
from ledger.evaluated import SlotLine, of_kind
from ledger.events import EvaluationMeasured, SplitRead
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.store import New

Purpose = Literal["selection", "report"]
_BATCH = 200
_CAVEATS, _CHARS = 20, 500


def record_reads(ledger: LedgerHandle, evaluation: Evaluation, *, purpose: Purpose, reader: str) -> int:
    """How many reads of validation and test bundles were new. To be called before anybody sees a number.

    The same reader's second look at the same rollouts is the same read; a look at others is another one.

    Args:
        purpose: selection (something is chosen by the numbers) or report.
        reader: short name of what reads.
    """
    events = []
    for run in evaluation.runs:
        for split, bundles in evaluation.read_bundles(run.run_id).items():
            if split == "train":
                continue
            lines = [
                line for cell in evaluation.cells if (cell.key.run_id, cell.key.split) == (run.run_id, split) for line in cell.measured
            ]
            seen = digest(sorted([line.rollout_id or "", line.passed, line.reward] for line in lines))[:12]
            body: Any = SplitRead(
                split=split, purpose=purpose, reader=f"{reader}:{seen}", run_id=run.run_id, bundles=len(bundles)  # type: ignore[arg-type]
            )  # fmt: skip
            events.append(ledger.new(body, correlation_id=run.run_id))
    return sum(item.created for item in ledger.append(events).events) if events else 0


def reads_of_test(ledger: LedgerHandle, run_ids: Sequence[str]) -> dict[str, int]:
    """Purpose to number of recorded reads of test bundles in the runs."""
    found = {"selection": 0, "report": 0}
    for event in of_kind(ledger, "SplitRead"):
        body: Any = event.body
        if body.split == "test" and body.run_id in run_ids:
            found[body.purpose] += 1
    return found


def measured_events(ledger: LedgerHandle, evaluation: Evaluation) -> Iterator[New]:
    """An event for each metric of each cell, with the cell's rows as its table; what was measured alike has the same id."""
    for cell in evaluation.cells:
        rows = [_row(line, line.rollout_id in cell.measured_ids) for line in cell.lines]
        settings = {
            "temperature": cell.key.temperature, "policy": cell.key.policy, "seed": cell.seed, "bundles": len(cell.bundle_ids),
            "level": evaluation.question.level, "draws": evaluation.question.draws,
        }  # fmt: skip
        table = ledger.pending_json({"rows": rows, "counts": cell.counts.as_json()})
        told = digest(rows)
        place = _Place(cell.key.run_id, cell.key.slice, cell.key.split, cell.key.model_version, None, settings, cell.counts, table)
        for estimate in cell.estimates.values():
            yield place.event(ledger, estimate, told)


def compared_events(ledger: LedgerHandle, comparisons: Sequence[Comparison]) -> Iterator[New]:
    """An event for each number of each comparison, with the pairs as its table; over several seeds the versions are those of the first."""
    for found in comparisons:
        rows = [dict(row) for row in found.rows]
        table = ledger.pending_json({"rows": rows, "before": list(found.before), "after": list(found.after), "notes": list(found.notes)})
        settings = {"temperature": found.temperature, "seeds": len(found.after), **found.gain.controls}
        counts = Counts(len(rows) + found.unpaired, len(rows), 0, {}, 0)
        place = _Place(found.run_ids[0], found.slice, found.split, found.after[0], found.before[0], settings, counts, table)
        told = digest([rows, list(found.before), list(found.after)])
        flips = [replace(estimate, name=f"flip_{estimate.name}") for estimate in (found.gain, found.p_value)]
        for estimate in (found.success_gain, found.reward_gain, *flips):
            yield place.event(ledger, estimate, told)


def append(ledger: LedgerHandle, events: Iterator[New]) -> int:
    """How many of the events were new; appended in batches, so that what is interrupted goes on where it stopped."""
    created, page = 0, list[New]()
    for event in events:
        page.append(event)
        if len(page) == _BATCH:
            created += sum(item.created for item in ledger.append(page).events)
            page = []
    return created + (sum(item.created for item in ledger.append(page).events) if page else 0)


def measured(ledger: LedgerHandle, run_id: str) -> list[EvaluationMeasured]:
    """What was measured and appended in a run, oldest first.

    Raises:
        UnknownId: nothing was.
    """
    bodies = [event.body for event in of_kind(ledger, "EvaluationMeasured")]
    found = [body for body in bodies if isinstance(body, EvaluationMeasured) and body.run_id == run_id]
    if not found:
        raise UnknownId(f"nothing was measured in run {run_id!r} of project {ledger.project!r}; `tally evaluate` does")
    return found


@dataclass(frozen=True)
class _Place:
    """What all events of one cell or one comparison share."""

    run_id: str
    slice: str
    split: str
    model_version: str
    against: str | None
    settings: Mapping[str, Any]
    counts: Counts
    table: Pending

    def event(self, ledger: LedgerHandle, estimate: Estimate, rows_digest: str) -> New:
        """One number as an event; the id tells apart what was measured from other rows or came to another number."""
        where = (self.run_id, self.slice, self.split, self.model_version, self.against, dict(self.settings))
        counts = self.counts
        body = EvaluationMeasured(
            evaluation_id=derived_id("evaluation", *where, digest([rows_digest, estimate.as_json()])), metric=estimate.name,
            run_id=self.run_id, slice=self.slice, split=self.split, model_version=self.model_version, against=self.against,
            value=estimate.value, low=estimate.low, high=estimate.high, level=estimate.level, method=estimate.method, n=estimate.n,
            expected=counts.expected, measured=counts.measured, masked=counts.masked, failed=counts.failed, omitted=counts.omitted,
            axis=estimate.axis, settings=dict(self.settings), table=self.table.ref,
            caveats=[note[:_CHARS] for note in estimate.caveats[:_CAVEATS]],
        )  # fmt: skip
        return ledger.new(body, self.table, correlation_id=self.run_id)


def _row(line: SlotLine, judged: bool) -> dict[str, Any]:
    return {
        "rollout_id": line.rollout_id, "bundle_id": line.bundle_id, "task": line.bundle, "group_id": line.group_id, "slot": line.slot,
        "seed": line.seed, "outcome": line.outcome, "ended_by": line.ended_by, "passed": passed(line) if judged else None,
        "reward": line.reward, "conditions": {item["name"]: item["status"] for item in line.conditions}, "side_effects": line.side_effects,
        "tokens_in": line.tokens_in, "tokens_out": line.tokens_out, "tool_calls": line.tool_calls, "model_calls": line.model_calls,
        "wall_s": line.wall_s,
    }  # fmt: skip
