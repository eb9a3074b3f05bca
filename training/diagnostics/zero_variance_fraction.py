"""How much of a batch says nothing, because all rewards of a population are the same."""

from collections.abc import Mapping

import numpy as np

from training.diagnostics import Measured, UpdateColumns
from training.diagnostics._sampled import fits
from training.rewards import Scored
from training.view import RolloutView

TIED = 1e-9


def zero_variance_fraction(view: RolloutView, reward: Scored, update: UpdateColumns) -> Mapping[str, Measured]:
    """Share of populations with two or more rewards that differ by at most 1e-9, and the share of the loss's weight that they hold.

    Args:
        view: columns along R and T; the population is group x kind x fork x participant.
        reward: rewards along R.
        update: weights; such tokens have no policy gradient but still get that of a penalty, such as a KL term.
    Returns:
        `populations`, `rollouts` and `weight`, as shares of those with two or more rewards, of their rollouts, and of all weight.
    Raises:
        MethodError: shapes differ.

    Source: case B16 of the field reports (frac_reward_zero_std of TRL); survey AUD-09: such tasks are not worthless and never deleted.
    """
    fits(view, update)
    rewarded_R = np.array([value is not None for value in reward.value_R], dtype=np.bool_)
    reward_R = np.array([0.0 if value is None else value for value in reward.value_R], dtype=np.float64)
    population_R = view.population_R
    size = int(population_R.max(initial=-1)) + 1
    low_P, high_P = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low_P, population_R[rewarded_R], reward_R[rewarded_R])
    np.maximum.at(high_P, population_R[rewarded_R], reward_R[rewarded_R])
    several_P = np.bincount(population_R[rewarded_R], minlength=size) >= 2
    tied_P = several_P & (high_P - low_P <= TIED)
    compared_R = rewarded_R & several_P[population_R]
    tied_R = rewarded_R & tied_P[population_R]
    total = float(np.abs(update.weight_T).sum())
    held = float(np.abs(update.weight_T[tied_R[view.rollout_T]]).sum())
    return {
        "populations": _share(int(tied_P.sum()), int(several_P.sum()), "share of populations"),
        "rollouts": _share(int(tied_R.sum()), int(compared_R.sum()), "share of rollouts"),
        "weight": Measured(held / total, int(np.count_nonzero(update.weight_T)), "share of weight")
        if total > 0
        else Measured(None, 0, "share of weight", ("no token has a weight",)),
    }


def _share(part: int, whole: int, unit: str) -> Measured:
    return Measured(part / whole, whole, unit) if whole else Measured(None, 0, unit, ("no population has two rewards",))
