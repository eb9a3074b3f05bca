"""Drops populations whose rewards are all the same and asks for others in their place (DAPO's dynamic sampling)."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ledger.errors import MethodError
from training.filters import Kept
from training.rewards import Scored
from training.view import RolloutView, TaskStatistics

TIED = 1e-9


def zero_variance(
    view: RolloutView, stats_B: Sequence[TaskStatistics], reward: Scored, *, all_failed: Literal["refill", "demonstration"] = "refill"
) -> Kept:
    """Keeps every rollout but those of populations with two or more rewards that differ by at most 1e-9.

    Dropped rollouts stay in the ledger and their task in the pool: no variance in this sample says nothing of the task. Rollouts without a
    reward shape nothing and are not dropped by this rule; a population with one reward is kept.

    Args:
        view: columns along R; the population is group x kind x fork x participant.
        stats_B: not used.
        reward: rewards along R.
        all_failed: route of a population of which no rollout succeeded; the others go to `refill`.
    Returns:
        Reason `zero_variance` for what is dropped, and counters: populations by what they had in common, dropped rollouts and tokens.
    Raises:
        MethodError: shapes differ, a reward is not finite, or `all_failed` is none of the two.

    Source: DAPO, arXiv 2503.14476, section 3.2. Released code (verl) drops by an unbiased deviation of 0, keeps groups of one as here, and
    does not tell what the dropped rollouts cost.
    """
    if all_failed not in ("refill", "demonstration"):
        raise MethodError(f"all_failed is {all_failed!r}; allowed: 'refill', 'demonstration'")
    if len(reward.value_R) != view.rollouts:
        raise MethodError(f"{len(reward.value_R)} rewards for {view.rollouts} rollouts; allowed: one each")
    reward_R = np.array(reward.value_R, dtype=np.float64)
    rewarded_R = np.array([value is not None for value in reward.value_R], dtype=np.bool_)
    if not np.isfinite(reward_R[rewarded_R]).all():
        raise MethodError("a reward is not finite; allowed: a finite number, or None where there is none")
    population_R = view.population_R
    size = int(population_R.max(initial=-1)) + 1
    low_P, high_P = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low_P, population_R[rewarded_R], reward_R[rewarded_R])
    np.maximum.at(high_P, population_R[rewarded_R], reward_R[rewarded_R])
    succeeded_R = np.array([outcome == "succeeded" for outcome in view.outcome_R], dtype=np.bool_)
    succeeded_P = np.bincount(population_R[rewarded_R & succeeded_R], minlength=size)
    count_P = np.bincount(population_R[rewarded_R], minlength=size)
    tied_P = (count_P >= 2) & (high_P - low_P <= TIED)
    drop_R = rewarded_R & tied_P[population_R]
    failed_R = drop_R & (succeeded_P[population_R] == 0)
    return Kept(
        keep_R=~drop_R,
        weight_R=np.ones(view.rollouts),
        reason_R=tuple("zero_variance" if drop else "" for drop in drop_R),
        route_R=tuple("" if not drop else all_failed if failed else "refill" for drop, failed in zip(drop_R, failed_R, strict=True)),
        counters={
            "populations_all_succeeded": int((tied_P & (succeeded_P == count_P)).sum()),
            "populations_all_failed": int((tied_P & (succeeded_P == 0)).sum()),
            "populations_tied": int(tied_P.sum()),
            "dropped_rollouts": int(drop_R.sum()),
            "dropped_tokens": int(np.count_nonzero(view.mask_T & drop_R[view.rollout_T])),
        },
    )
