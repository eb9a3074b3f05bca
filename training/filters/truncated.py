"""Drops rollouts that a limit ended."""

from collections.abc import Sequence

import numpy as np

from ledger.outcome import LIMITS
from training.filters import Kept
from training.rewards import Scored
from training.view import RolloutView, TaskStatistics


def truncated(view: RolloutView, stats_B: Sequence[TaskStatistics], reward: Scored, *, keep_succeeded: bool = False) -> Kept:
    """Keeps every rollout but those that ended by a token, turn, context or wall-clock limit.

    Whether the policy ran into the limit by its own doing is for attribution to say, so a recipe asks for this; by default it is not used.

    Args:
        view: columns along R.
        stats_B: not used.
        reward: not used.
        keep_succeeded: keep those that had reached the goal when the limit came.
    Returns:
        Reason `truncated:<limit>` for what is dropped, counted by limit; no route.

    Source: DAPO, arXiv 2503.14476, section 3.4 (overlong filtering). Released code departs: TRL's mask_truncated_completions and verl leave
    such rollouts in the group's mean and deviation and only mask their loss.
    """
    drop_R = np.array(
        [
            ended_by in LIMITS and not (keep_succeeded and outcome == "succeeded")
            for ended_by, outcome in zip(view.ended_by_R, view.outcome_R, strict=True)
        ],
        dtype=np.bool_,
    )
    reason_R = tuple(f"truncated:{ended_by}" if drop else "" for ended_by, drop in zip(view.ended_by_R, drop_R, strict=True))
    counters = {f"truncated:{limit}": reason_R.count(f"truncated:{limit}") for limit in LIMITS}
    return Kept(~drop_R, np.ones(view.rollouts), reason_R, ("",) * view.rollouts, counters)
