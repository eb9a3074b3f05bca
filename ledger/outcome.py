"""Outcome: what an ended rollout says, from how it ended, the verdict that counts and whose fault an audit says it was. Pure."""

from typing import Literal, get_args

Outcome = Literal[
    "running", "succeeded", "task_failed", "env_failed", "verifier_failed", "harness_failed", "limit_ended", "aborted", "unknown"
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
LIMITS = ("token_limit", "turn_limit", "context_full", "wall_clock")
JUDGED: tuple[Outcome, ...] = ("succeeded", "task_failed", "limit_ended")
"""Outcomes that are evidence about the policy: the denominator of a success rate."""
FAULTS: tuple[Outcome, ...] = ("env_failed", "verifier_failed", "harness_failed", "aborted")
"""Outcomes that say nothing about the policy, because something else broke first."""
BROKEN: tuple[Outcome, ...] = ("env_failed", "verifier_failed", "harness_failed")
"""Outcomes that have a boundary."""
ERRORS = ("world_error", "harness_error", "engine_error")
"""Ends by which something else than the policy broke."""

_ERRORS: dict[str, Outcome] = {
    "cancelled": "aborted", "world_error": "env_failed", "harness_error": "harness_failed", "engine_error": "aborted"
}  # fmt: skip
UNDECIDED = "undecided"
"""What attribution says, as a fault without a boundary, where it cannot tell whose fault a failure was."""
_ATTRIBUTED: dict[str | None, Outcome] = {"environment": "env_failed", "verifier": "verifier_failed", "harness": "harness_failed"}


def outcome_of(
    ended_by: str | None, *, superseded: bool, verdict_status: str | None, passed: bool | None, attributed: str | None = None,
    judged_since: bool = False,
) -> Outcome:  # fmt: skip
    """The outcome of a rollout.

    Args:
        ended_by: how it ended; None while it runs.
        superseded: another attempt took its place.
        verdict_status: status of the verdict that counts, completed or error; None when there is none.
        passed: what that verdict says; None when it says neither.
        attributed: boundary of the newest attribution, `undecided`, or None where none blames anything but the policy.
        judged_since: the verdict that counts is newer than the attribution, which then says nothing about the verifier any more, nor that
            nobody can tell.
    """
    if ended_by is None:
        return "running"
    if superseded:
        return "aborted"
    if judged_since and attributed in ("verifier", UNDECIDED):
        attributed = None
    if attributed in _ATTRIBUTED:
        return _ATTRIBUTED[attributed]
    if ended_by in _ERRORS:
        return _ERRORS[ended_by]
    if verdict_status == "error":
        return "verifier_failed"
    if passed is None or attributed == UNDECIDED:
        return "unknown"
    if passed:
        return "succeeded"
    return "limit_ended" if ended_by in LIMITS else "task_failed"


def verdict_rank(kind: str, role: str, verifier_kind: str, passed: bool | None) -> int | None:
    """How much a verdict weighs when several judge one rollout; the newest of the highest rank counts, None never counts.

    Args:
        kind: the event's kind, VerdictGiven or ReviewDecided.
        role: bundle or second_opinion; ignored for a review.
        verifier_kind: program, state_diff, judge or human; ignored for a review.
        passed: what it says; a review that says neither settles nothing.
    """
    if kind == "ReviewDecided":
        return None if passed is None else 4
    if role != "bundle":
        return None
    return {"human": 4, "program": 3, "state_diff": 3, "judge": 2}[verifier_kind]
