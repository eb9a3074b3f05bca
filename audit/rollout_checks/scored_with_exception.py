"""A rollout that something else than its policy broke has no reward. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._faults import Fault, found, skipped

_BROKE = {
    "world_error": "world_crashed", "harness_error": "harness_crashed", "engine_error": "engine_failed", "cancelled": "harness_crashed"
}  # fmt: skip


@answers("scored_with_exception", explains=("no_model_call", "reward_without_trace"))
def scored_with_exception(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a rollout that ended by an error of world, harness or engine, or was cancelled, has no reward that is a number.

    A limit is an end that is graded.

    Source: cases A8, A13.
    """
    if subject.ended is None or not subject.rewarded:
        return skipped("scored_with_exception", "the rollout has not ended, or has no reward")
    end_id, end = subject.ended
    scored = [(event_id, body.value) for event_id, body in subject.rewarded if body.value is not None]
    faults = [
        Fault({"ended_by": end.ended_by, "value": value, "reason": end.reason}, (end_id, event_id))
        for event_id, value in scored
        if end.ended_by in _BROKE
    ]
    return [
        found(
            "scored_with_exception", faults, why="a rollout that broke was scored", kind=_BROKE.get(end.ended_by, "harness_crashed"),
            remedy="give such a rollout a null reward with the reason", measured={"ended_by": end.ended_by, "rewards": len(scored)},
        )
    ]  # fmt: skip
