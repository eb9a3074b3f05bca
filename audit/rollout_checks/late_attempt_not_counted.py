"""Of the attempts at a slot one counts. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._calls import started_id
from audit.rollout_checks._faults import Fault, found, skipped


@answers("late_attempt_not_counted")
def late_attempt_not_counted(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether an attempt with a reward is not followed by another counted attempt at its slot, unless it was superseded.

    An attempt that broke and has no reward may be made again.

    Source: case G2.
    """
    mine = subject.started
    later = [one for one in subject.siblings if one.slot == mine.slot and one.attempt > mine.attempt and one.counts]
    if not [one for one in subject.siblings if one.slot == mine.slot]:
        return skipped("late_attempt_not_counted", "the slot had one attempt")
    scored = [event_id for event_id, body in subject.rewarded if body.value is not None]
    counts = subject.ended is not None and not subject.ended[1].superseded and bool(scored)
    end_id = None if subject.ended is None else subject.ended[0]
    faults = [
        Fault({"slot": mine.slot, "attempt": mine.attempt, "also": one.attempt}, (started_id(subject), end_id, *scored, one.started_id))
        for one in later
        if counts
    ]
    return [
        found(
            "late_attempt_not_counted", faults, why="two attempts at one slot count", kind="late_attempt",
            remedy="end an attempt that is given up as superseded before the next one begins", measured={"later_attempts": len(later)},
        )
    ]  # fmt: skip
