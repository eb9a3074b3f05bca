"""A remark where a reward and the conditions beside it point different ways. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._faults import Fault, found, skipped


@answers("subcheck_vs_reward")
def subcheck_vs_reward(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a full reward goes with a condition outside the basis that failed, or none at all with conditions that all passed.

    It blames nobody: what is in the basis is the task's choice.

    Source: case I6.
    """
    verdicts = {body.verdict_id: (event_id, body) for event_id, body in subject.judged}
    faults, looked = [], 0
    for event_id, reward in subject.rewarded:
        for verdict_event, verdict in (verdicts[name] for name in reward.verdict_ids if name in verdicts):
            if reward.value is None or not verdict.conditions:
                continue
            looked += 1
            beside = [item.name for item in verdict.conditions if not item.in_basis and item.status == "failed"]
            basis = [item.status for item in verdict.conditions if item.in_basis]
            seen = {"value": reward.value, "failed_beside": beside, "basis_passed": bool(basis) and set(basis) == {"passed"}}
            paid = reward.value >= float(policy["reward_high"]) and beside
            unpaid = reward.value <= float(policy["reward_low"]) and seen["basis_passed"] and not verdict.side_effect_count
            if paid or unpaid:
                faults.append(Fault(seen, (verdict_event, event_id)))
    if not looked:
        return skipped("subcheck_vs_reward", "no reward names a verdict with conditions")
    return [
        found(
            "subcheck_vs_reward", faults, why="a reward and a condition point different ways", kind=None, measured={"rewards": looked},
            remedy="look whether the condition belongs in the basis",
        )
    ]  # fmt: skip
