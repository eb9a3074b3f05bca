"""The ticket desk's verifier with a further check a ticket: the same verdict as `desk_conditions`, and where it went wrong."""

from collections.abc import Sequence
from typing import Any

from ledger.errors import VerifierFailed
from training.verifiers import Condition, ConditionStatus, JudgeTask, TraceStep, Verdict
from training.verifiers._desk_families import verdict


def desk_tickets(s0: Any, s_end: Any, trace: Sequence[TraceStep], task: JudgeTask, *, ask: Any = None) -> Verdict:
    """The verdict on a task with a rule of its own, with one check for each ticket beside the conditions that success requires.

    A ticket passes when nothing that the rule says was done wrongly to it or left out. A policy that treats most tickets rightly is told
    apart from one that treats none so, which a condition over all tickets cannot do. Evidence names the conditions that failed.

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
    named: dict[str, dict[str, list[str]]] = {ticket_id: {"failed": [], "undecided": []} for ticket_id in s0["tickets"]}
    for condition in told.conditions:
        for kind in ("failed", "undecided") if condition.in_basis else ():
            into = "undecided" if "user_error" in condition.evidence else kind
            for item in condition.evidence[kind]:
                if item.get("ticket_id") in named:
                    named[item["ticket_id"]][into].append(condition.name)
    return Verdict((*told.conditions, *(_check(name, found) for name, found in named.items())), told.side_effects)


def _check(ticket_id: str, found: dict[str, list[str]]) -> Condition:
    status: ConditionStatus = "failed" if found["failed"] else "error" if found["undecided"] else "passed"
    return Condition(f"ticket {ticket_id}", status, {"conditions": found}, in_basis=False)
