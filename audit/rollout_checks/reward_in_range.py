"""A reward is a number within its range. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._faults import Fault, found, skipped


@answers("reward_in_range")
def reward_in_range(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether every reward is between `reward_low` and `reward_high`; one that is missing is not looked at.

    Source: case I1.
    """
    low, high = float(policy["reward_low"]), float(policy["reward_high"])
    scored = [(event_id, body.value) for event_id, body in subject.rewarded if body.value is not None]
    if not scored:
        return skipped("reward_in_range", "the rollout has no reward")
    faults = [Fault({"value": value, "low": low, "high": high}, (event_id,)) for event_id, value in scored if not low <= value <= high]
    return [
        found(
            "reward_in_range", faults, why="a reward is out of its range", kind="reward_out_of_range", measured={"rewards": len(scored)},
            remedy="derive rewards by a rule that is bounded",
        )
    ]  # fmt: skip
