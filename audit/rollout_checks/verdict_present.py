"""A reward rests on a verdict that is there. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._faults import Fault, found, skipped

_ID = "verdict.present"


@answers(_ID, explains=("reward_none_coerced", "verdict_details_present", "subcheck_vs_reward"))
def verdict_present(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether every reward that is a number names a verdict or a person's decision on the rollout that is in the ledger.

    A rollout that was not judged yet has no reward, and is no failure.

    Source: cases A3, I1.
    """
    scored = [(event_id, body) for event_id, body in subject.rewarded if body.value is not None]
    if not scored:
        return skipped(_ID, "the rollout has no reward")
    there = {verdict.verdict_id for _, verdict in subject.judged} | {review.review_id for _, review in subject.reviewed}
    faults = [
        Fault({"value": body.value, "rule": body.rule, "verdicts_named": len(body.verdict_ids)}, (event_id,))
        for event_id, body in scored
        if not there & set(body.verdict_ids)
    ]
    return [
        found(
            _ID, faults, why="a reward has no verdict behind it", kind="reward_without_verdict",
            remedy="without a verdict the reward is null, with the reason",
            measured={"rewards": len(scored), "verdicts": len(subject.judged)},
        )
    ]  # fmt: skip
