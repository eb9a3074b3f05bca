"""What a round says of each task: rewards over the rollouts that vote, and beside them what broke, by its outcome. Pure."""

import numpy as np

from ledger.outcome import LIMITS
from training.rewards import Scored
from training.view import Bools, RolloutView, TaskStatistics


def task_statistics(view: RolloutView, reward: Scored, votes_R: Bools) -> tuple[TaskStatistics, ...]:
    """Statistics of each task in order of first appearance: of the rewards that vote, with what else there was beside.

    `limit_ended` counts all that a limit ended, whether they vote or not.

    Args:
        view: the round.
        reward: along its rollouts; a number for each that votes.
        votes_R: which rollouts are in `n` and in the numbers.
    """
    found: list[TaskStatistics] = []
    for bundle_id in dict.fromkeys(view.bundle_id_R):
        mine = [r for r, other in enumerate(view.bundle_id_R) if other == bundle_id]
        voters = [r for r in mine if votes_R[r]]
        values = np.array([reward.value_R[r] for r in voters], dtype=np.float64)
        outcomes = [view.outcome_R[r] for r in mine]
        found.append(
            TaskStatistics(
                bundle_id, len(voters), float(values.mean()) if len(voters) else None, float(values.var()) if len(voters) else None,
                float(values.std(ddof=1)) if len(voters) > 1 else None,
                sum(view.outcome_R[r] == "succeeded" for r in voters) / len(voters) if voters else None,
                limit_ended=sum(view.ended_by_R[r] in LIMITS for r in mine), env_failed=outcomes.count("env_failed"),
                verifier_failed=outcomes.count("verifier_failed"), harness_failed=outcomes.count("harness_failed"),
                unknown=outcomes.count("unknown"),
            )
        )  # fmt: skip
    return tuple(found)
