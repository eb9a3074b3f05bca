"""The ticket desk's verifier: six conditions from the states and the rule, without replaying any reference."""

from collections.abc import Sequence
from typing import Any

from training.verifiers import JudgeTask, TraceStep, Verdict
from training.verifiers._desk_families import verdict
from training.verifiers._desk_rules import (
    case_of,
    cooldown_kept,
    nothing_else,
    only_matching,
    only_owners,
    owners_mailed,
    reminders_written,
    strays,
)


def desk_conditions(s0: Any, s_end: Any, trace: Sequence[TraceStep], task: JudgeTask, *, ask: Any = None) -> Verdict:
    """The verdict on C1 to C6, or for a task with a rule of its own on the eight conditions of any rule.

    C1 every due ticket has a mail to its owner; C2 no mail to anybody else; C3 none for a ticket reminded less than the cool-down ago,
    second mails included; C4 a reminder time within the rollout on each mailed ticket; C5 nothing else changed; C6 no mail for a ticket
    that the rule does not name. Of any rule: `mailed` every mail that it asks for was sent; `recipients` to nobody else; `cooldown` none
    twice or too soon; `exceptions`, `matching` and `limit` nothing done about tickets that it leaves out, does not name, or has no room
    for; `written` due tickets have the values asked for; `side_effects` nothing else changed. A user who misled the policy shows as
    `user_error`. Evidence lists what was checked, what failed, what could not be decided, and whether there was nothing to check.

    Args:
        s0: the desk's view at the request.
        s_end: the desk's view at the end.
        trace: not used; the states hold all that counts.
        task: its spec holds priority, status, older_than_days (days) and cooldown_hours (hours), or a rule.
        ask: not used.
    Raises:
        VerifierFailed: a view is not a desk's, or the spec lacks a constant of the rule.
    Source: survey and loop article, the ticket desk's criteria.
    """
    if "rule" in task.draft.spec:
        return verdict(s0, s_end, task)
    case = case_of(s0, s_end, task)
    conditions = (
        owners_mailed(case), only_owners(case), cooldown_kept(case), reminders_written(case), nothing_else(case), only_matching(case),
    )  # fmt: skip
    return Verdict(conditions, strays(case))
