"""The ticket desk's verifier with one condition a ticket: the same success as `desk_conditions`, told apart by where it went wrong."""

from collections.abc import Sequence
from typing import Any

from ledger.errors import VerifierFailed
from training.verifiers import Condition, ConditionStatus, JudgeTask, TraceStep, Verdict
from training.verifiers._desk_families import verdict

ELSEWHERE = "elsewhere"


def desk_tickets(s0: Any, s_end: Any, trace: Sequence[TraceStep], task: JudgeTask, *, ask: Any = None) -> Verdict:
    """The verdict on a task with a rule of its own: one condition for each ticket, and one for everything else.

    A ticket passes when nothing that the rule says was done wrongly to it or left out. A policy that treats most tickets rightly is told
    apart from one that treats none so, which a condition over all tickets cannot do. Evidence names the checks that failed.

    Args:
        s0: the desk's view at the request.
        s_end: the desk's view at the end.
        trace: not used; the states hold all that counts.
        task: its spec holds a rule.
        ask: not used.
    Raises:
        VerifierFailed: the task has no rule of its own, a view is not a desk's, or the rule holds what this verifier does not know.
    Source: survey and loop article, the ticket desk's criteria.
    """
    if "rule" not in task.draft.spec:
        raise VerifierFailed(f"task {task.draft.name!r} has no rule of its own; allowed: tasks of families, or desk_conditions")
    told = verdict(s0, s_end, task)
    basis = [condition for condition in told.conditions if condition.in_basis]
    excused = {condition.name for condition in basis if "user_error" in condition.evidence}
    wrong: dict[str, list[dict[str, Any]]] = {}
    open_: dict[str, list[dict[str, Any]]] = {}
    for condition in basis:
        for kind, found in (("failed", wrong), ("undecided", open_)):
            into = open_ if condition.name in excused else found
            for item in condition.evidence[kind]:
                ticket_id = item.get("ticket_id")
                into.setdefault(ticket_id if ticket_id in s0["tickets"] else ELSEWHERE, []).append({"check": condition.name, **item})
    conditions = [_condition(name, wrong.get(name, []), open_.get(name, [])) for name in (*s0["tickets"], ELSEWHERE)]
    return Verdict((*conditions, *(condition for condition in told.conditions if not condition.in_basis)), told.side_effects)


def _condition(name: str, wrong: Sequence[dict[str, Any]], open_: Sequence[dict[str, Any]]) -> Condition:
    status: ConditionStatus = "failed" if wrong else "error" if open_ else "passed"
    evidence = {"failed": list(wrong), "undecided": list(open_)} if wrong or open_ else None
    return Condition(name if name == ELSEWHERE else f"ticket {name}", status, evidence)
