"""Binary outcome reward: 1 when every condition in the basis passed, 0 when one failed."""

from collections.abc import Sequence

from training.rewards import JudgedRollout, Scored
from training.rewards._judged import NO_EVIDENCE


def all_conditions(view_R: Sequence[JudgedRollout]) -> Scored:
    """1.0 for a rollout whose counting verdict passed, 0.0 for one that failed, and None where nothing was decided.

    A rollout that the world, the harness or the engine broke says nothing about the policy, so it has no reward, whatever was judged.

    Args:
        view_R: judged rollouts, axis R.
    Returns:
        Rewards along R in {0.0, 1.0, None}, with the share of passed conditions as the term `passed_share` in [0, 1].

    Source: the survey's outcome reward, section 0 (criteria C1-C6).
    """
    value: list[float | None] = []
    reason: list[str] = []
    share: list[float | None] = []
    for rollout in view_R:
        decided = [passed for passed in rollout.conditions.values() if passed is not None]
        share.append(sum(decided) / len(decided) if decided and len(decided) == len(rollout.conditions) else None)
        if rollout.ended_by in NO_EVIDENCE:
            value.append(None)
            reason.append(f"no evidence about the policy: {rollout.ended_by}")
        elif rollout.passed is None:
            value.append(None)
            reason.append("no verdict" if rollout.verdict_status is None else "the verifier could not decide")
        else:
            value.append(1.0 if rollout.passed else 0.0)
            reason.append("every condition passed" if rollout.passed else "a condition failed")
    return Scored(tuple(value), tuple(reason), {"passed_share": tuple(share)})
