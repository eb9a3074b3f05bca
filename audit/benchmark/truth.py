"""The truth of a benchmark: each struck rollout beside its fault-off twin and its labels. Reads the database."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from audit.benchmark.suite import Case, Suite
from audit.benchmark.verifiers.misjudging import WAYS
from ledger.attempts import CountedRollout, counted
from ledger.errors import UnknownId
from ledger.events import Boundary, VerdictGiven
from ledger.ledger import LedgerHandle

Said = Boundary | Literal["none", "unknown"]
"""A class: a boundary, `none` for a success, and from an attribution also `unknown`."""
Sort = Literal["caused", "incidental", "recovered", "genuine", "clean"]


@dataclass(frozen=True)
class Truth:
    """What is so of a subject.

    Attributes:
        subject: the rollout's or the update's stream.
        boundary, fault: whose fault it is and of which kind; `none` and None where nothing went wrong. The kind of a task's failure is
            not known.
        planted: kind of the fault that struck, whether it mattered or not; None without one.
        sort: `caused` by what was planted; `incidental` where it failed without it too; `recovered` where it succeeded in spite of it;
            `genuine` and `clean` are failures and successes without a fault.
        task: name of the task, or of the round; cases of one task are not independent.
    """

    subject: str
    boundary: Said
    fault: str | None
    planted: str | None
    sort: Sort
    task: str = ""


@dataclass(frozen=True)
class Truths:
    """All truths of a suite.

    Attributes:
        known: one a rollout, in the order of the cases.
        unstruck: kind to cases in which the fault found no place; they are scored nowhere.
        apart: kind to cases whose two rollouts ended in other states although the fault came after both; scored nowhere.
    """

    known: tuple[Truth, ...]
    unstruck: Mapping[str, int]
    apart: Mapping[str, int]


def truths(suite: Suite) -> Truths:
    """The truth of every rollout of a suite that was collected and judged: by its labels and by what its twin did.

    Raises:
        UnknownId: a rollout is missing.
    """
    rollouts = suite.rollout_ids()
    outcomes = {rollout.rollout_id: rollout for rollout in counted(suite.ledger, suite.run.run_id, suite.run.round)}
    labelled = labels(suite.ledger, list(outcomes))
    ends = _end_states(suite.ledger, [outcomes[rollouts[g]] for g in suite.groups if g in rollouts])
    known: dict[str, Truth] = {}
    unstruck: dict[str, int] = {}
    apart: dict[str, int] = {}
    for case in suite.cases:
        mine, twin = (_outcome(suite, outcomes, rollouts, case, twin=which) for which in (False, True))
        if twin.rollout_id not in known:
            known[twin.rollout_id] = _plain(twin, case)
        if case.kind is None:
            continue
        if not labelled.get(mine.rollout_id):
            unstruck[case.kind.name] = unstruck.get(case.kind.name, 0) + 1
        elif case.kind.name in WAYS and ends.get(mine.rollout_id) != ends.get(twin.rollout_id):
            apart[case.kind.name] = apart.get(case.kind.name, 0) + 1
        else:
            known[mine.rollout_id] = _struck(mine, twin, case)
    return Truths(tuple(known.values()), unstruck, apart)


def labels(ledger: LedgerHandle, ids: list[str]) -> dict[str, list[str]]:
    """Rollout or update to the kinds of faults that its labels name."""
    found: dict[str, list[str]] = {}
    ledger.barrier()
    for event in ledger.read_streams([f"fault-{one}" for one in ids]):
        found.setdefault(event.stream.removeprefix("fault-"), []).append(str(getattr(event.body, "fault", "")))
    return found


def _outcome(
    suite: Suite, outcomes: Mapping[str, CountedRollout], rollouts: Mapping[str, str], case: Case, *, twin: bool
) -> CountedRollout:  # fmt: skip
    group_id = suite.run.group_id(case.twin if twin else case.group)
    if group_id not in rollouts or rollouts[group_id] not in outcomes:
        raise UnknownId(f"group {group_id!r} of the benchmark has no rollout; make the suite first")
    return outcomes[rollouts[group_id]]


def _end_states(ledger: LedgerHandle, rollouts: list[CountedRollout]) -> dict[str, str | None]:
    streams = [f"verdict-{name}" for rollout in rollouts for name in rollout.verdict_ids]
    bodies = (event.body for event in ledger.read_streams(streams))
    return {body.rollout_id: body.state_end for body in bodies if isinstance(body, VerdictGiven)}


def _plain(rollout: CountedRollout, case: Case) -> Truth:
    task, subject = case.twin.bundle.draft.name, f"rollout-{rollout.rollout_id}"
    if rollout.passed is True:
        return Truth(subject, "none", None, None, "clean", task)
    return Truth(subject, "task", None, None, "genuine", task)


def _struck(mine: CountedRollout, twin: CountedRollout, case: Case) -> Truth:
    assert case.kind is not None
    name, task, subject = case.kind.name, case.group.bundle.draft.name, f"rollout-{mine.rollout_id}"
    succeeded, would = mine.passed is True, twin.passed is True
    # A verdict that lets a failure pass is its verifier's fault; a world's fault that happens to help a policy is nobody's failure.
    if (would and not succeeded) or (name in WAYS and succeeded and not would):
        return Truth(subject, case.kind.boundary, name, name, "caused", task)
    if succeeded:
        return Truth(subject, "none", None, name, "recovered", task)
    return Truth(subject, "task", None, name, "incidental", task)
