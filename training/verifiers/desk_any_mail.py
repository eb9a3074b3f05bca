"""A planted verifier: the ticket desk's conditions without any look at recipients, so that it lets mails to the wrong person pass."""

from collections.abc import Sequence
from typing import Any

from training.verifiers import JudgeTask, TraceStep, Verdict
from training.verifiers._desk_families import verdict
from training.verifiers._desk_rules import (
    a_mail_exists,
    case_of,
    cooldown_kept,
    nothing_else,
    only_matching,
    owners_mailed,
    planted,
    reminders_written,
    strays,
)


@planted("C2 only asks that a mail exists, and C1 takes a mail to anybody: a wrong recipient passes")
def desk_any_mail(s0: Any, s_end: Any, trace: Sequence[TraceStep], task: JudgeTask, *, ask: Any = None) -> Verdict:
    """The verdict of a verifier that is wrong on purpose: C2 is replaced by "a mail exists", and C1 counts a mail to anybody.

    C1 has to give way too: if it still asked for the owner's address, it would catch every wrong recipient in C2's place. Of any rule,
    `mailed` and `recipients` take a mail to anybody.

    Raises:
        VerifierFailed: a view is not a desk's, or the spec lacks a constant of the rule.
    Source: survey, research question 1, planted gap V-wrong.
    """
    if "rule" in task.draft.spec:
        return verdict(s0, s_end, task, any_recipient=True)
    case = case_of(s0, s_end, task)
    conditions = (
        owners_mailed(case, any_recipient=True), a_mail_exists(case), cooldown_kept(case), reminders_written(case), nothing_else(case),
        only_matching(case),
    )  # fmt: skip
    return Verdict(conditions, strays(case))
