"""Did a missing reward stay missing?"""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._said import evidence, said, skipped


@answers("reward_none_coerced", explains=("adv_recompute", "weight_shares", "singleton_convention"))
def reward_none_coerced(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """No row has a number where its reward event has none, or where no reward and no verdict stands behind it.

    Source: cases A7 and B9: None stays None, and the rollout is in no baseline.
    """
    if not subject.judged:
        return skipped("reward_none_coerced", "no reward shapes this update")
    faults: list[dict[str, Any]] = []
    for _, row in subject.batch_rows:
        held = None if row.reward_id is None else subject.rewards.get(row.reward_id)
        if row.reward is not None and row.reward_id is None:
            faults.append({"rollout": row.rollout_id, "reward": row.reward, "found": "no reward was derived"})
        elif held is not None and held[1].value is None and (row.reward is not None or row.votes):
            faults.append({"rollout": row.rollout_id, "reward": row.reward, "found": "the reward is null", "reason": held[1].reason})
        elif held is not None and held[1].value is not None and not held[1].verdict_ids:
            faults.append({"rollout": row.rollout_id, "reward": row.reward, "found": "no verdict behind the reward"})
    return said(
        "reward_none_coerced", faults, why="a number was trained on where there is no reward", remedy="leave rollouts without a reward out",
        fault="reward_coerced", events=evidence(subject, [fault["rollout"] for fault in faults]), rows=len(subject.batch_rows),
    )  # fmt: skip
