"""What a round says of each task: rewards over the rollouts that count, and beside them what broke, by its outcome. Pure."""

from collections import Counter
from typing import Literal

import numpy as np

from ledger.outcome import JUDGED
from training.rewards import Scored
from training.view import RolloutView, TaskStatistics

_BESIDE = ("env_failed", "verifier_failed", "harness_failed")


def task_statistics(
    view: RolloutView, reward: Scored, *, truncated: Literal["include", "exclude"] = "include"
) -> tuple[TaskStatistics, ...]:
    """Statistics of each bundle in order of first appearance.

    A rollout is in `n` when its outcome is evidence about the policy and its reward is a number. `limit_ended` counts all that a limit
    ended, in `n` or not; `unknown` all that is neither in `n` nor counted under another name.

    Args:
        view: the round.
        reward: along its rollouts.
        truncated: whether rollouts that a limit ended are in `n`.
    """
    found = []
    for bundle_id in dict.fromkeys(view.bundle_id_R):
        mine = [r for r, other in enumerate(view.bundle_id_R) if other == bundle_id]
        outcomes = Counter(view.outcome_R[r] for r in mine)
        judged = [r for r in mine if view.outcome_R[r] in JUDGED and (truncated == "include" or view.outcome_R[r] != "limit_ended")]
        counted = [(r, value) for r in judged if (value := reward.value_R[r]) is not None]
        values = np.array([value for _, value in counted], dtype=np.float64)
        n, named = len(values), sum(outcomes[name] for name in _BESIDE)
        limits_beside = outcomes["limit_ended"] - sum(view.outcome_R[r] == "limit_ended" for r, _ in counted)
        found.append(TaskStatistics(
            bundle_id=bundle_id, n=n, mean=float(values.mean()) if n else None, var_pop=float(values.var()) if n else None,
            std_unbiased=float(values.std(ddof=1)) if n > 1 else None,
            pass_rate=sum(view.outcome_R[r] == "succeeded" for r, _ in counted) / n if n else None,
            limit_ended=outcomes["limit_ended"], env_failed=outcomes["env_failed"], verifier_failed=outcomes["verifier_failed"],
            harness_failed=outcomes["harness_failed"], unknown=len(mine) - n - named - limits_beside,
        ))  # fmt: skip
    return tuple(found)
