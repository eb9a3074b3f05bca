"""A verification that did not complete gives no number. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._faults import Fault, found, skipped


@answers("reward_none_coerced")
def reward_none_coerced(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a reward that is a number rests on at least one completed verification, or on a person's decision that is clear.

    A verdict that completed and failed gives an honest zero.

    Source: cases A3, A7, B9.
    """
    verdicts = {body.verdict_id: (event_id, body) for event_id, body in subject.judged}
    decided = {body.review_id for _, body in subject.reviewed if body.decision != "unclear"}
    scored = [(event_id, body) for event_id, body in subject.rewarded if body.value is not None]
    if not scored:
        return skipped("reward_none_coerced", "the rollout has no reward")
    faults = []
    for event_id, body in scored:
        named = [verdicts[name] for name in body.verdict_ids if name in verdicts]
        clear = any(verdict.status == "completed" and verdict.passed is not None for _, verdict in named)
        if not clear and not decided & set(body.verdict_ids):
            seen = {"value": body.value, "verdicts": [verdict.status for _, verdict in named]}
            faults.append(Fault(seen, (*(verdict_event for verdict_event, _ in named), event_id)))
    return [
        found(
            "reward_none_coerced", faults, why="a reward is a number although nothing was verified", kind="reward_coerced",
            remedy="keep a missing reward null", measured={"rewards": len(scored)},
        )
    ]  # fmt: skip
