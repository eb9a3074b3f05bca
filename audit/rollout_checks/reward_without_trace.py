"""A reward leads back to what was done for it. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._faults import Fault, found, skipped


@answers("reward_without_trace")
def reward_without_trace(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a rollout with a reward holds a model call or a tool call, and has ended.

    A rollout that did nothing on purpose has at least the answer that says so.

    Source: case H4.
    """
    scored = [(event_id, body) for event_id, body in subject.rewarded if body.value is not None]
    if not scored:
        return skipped("reward_without_trace", "the rollout has no reward")
    faults = [
        Fault({"value": body.value, "model_calls": len(subject.calls), "ended": subject.ended is not None}, (event_id,))
        for event_id, body in scored
        if subject.ended is None or not (subject.calls or subject.tools)
    ]
    return [
        found(
            "reward_without_trace", faults, why="a reward leads to nothing that was done", kind="capture_gap",
            remedy="record what an agent does before anybody scores it", measured={"rewards": len(scored)},
        )
    ]  # fmt: skip
