"""Means and deviations by group, over voters alone. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from training.advantages import Advantages
from training.advantages._voters import POPULATION, SINGLETON, SINGLETON_REWARD, Columns, chosen, spread, told, voters_of
from training.rewards import Scored
from training.view import Bools, Floats, Ints, RolloutView

TIED = 1e-9
"""Values whose largest and smallest differ by no more than this have no variance."""


@dataclass(frozen=True, eq=False)
class Groups:
    """Statistics by group P.

    Attributes:
        n_P: values.
        mean_P: their mean, 0 without any.
        square_P: sum of squared deviations from it.
        tied_P: no variance.
    """

    n_P: Ints
    mean_P: Floats
    square_P: Floats
    tied_P: Bools

    def std_P(self, kind: str) -> Floats:
        """Standard deviation, `unbiased` (divisor n - 1) or `population` (divisor n); 0 for fewer than two values."""
        divisor = self.n_P - 1 if kind == "unbiased" else self.n_P
        std_P: Floats = np.sqrt(self.square_P / np.maximum(divisor, 1))
        return std_P

    def deviation_N(self, value_N: Floats, group_N: Ints) -> Floats:
        """Each value less its group's mean; exactly 0 in a group without variance."""
        return np.where(self.tied_P[group_N], 0.0, value_N - self.mean_P[group_N])

    def scaled_N(self, value_N: Floats, group_N: Ints, std: str, eps: float) -> Floats:
        """Deviations over (std + eps), or as they are for `none`."""
        deviation_N = self.deviation_N(value_N, group_N)
        return deviation_N if std == "none" else deviation_N / (self.std_P(std)[group_N] + eps)


def groups_of(value_N: Floats, group_N: Ints, groups: int) -> Groups:
    """Statistics of `value_N` by `group_N`, which holds numbers below `groups`."""
    n_P = np.bincount(group_N, minlength=groups)
    mean_P = np.bincount(group_N, weights=value_N, minlength=groups) / np.maximum(n_P, 1)
    square_P = np.bincount(group_N, weights=(value_N - mean_P[group_N]) ** 2, minlength=groups).astype(np.float64)
    low_P, high_P = np.full(groups, np.inf), np.full(groups, -np.inf)
    np.minimum.at(low_P, group_N, value_N)
    np.maximum.at(high_P, group_N, value_N)
    return Groups(n_P, mean_P, square_P, ~(high_P - low_P > TIED))


def largest_sum(value_N: Floats, group_N: Ints, groups: int) -> float:
    """The largest absolute sum of a group: 0 for values about their own mean."""
    return float(np.abs(np.bincount(group_N, weights=value_N, minlength=groups)).max(initial=0.0))


Estimate = Callable[[Floats, Floats, Floats], Floats]
"""(deviation_R, n_R, square_R) to the advantage of each rollout, where n and squared deviations are of its population."""


def by_population(
    view: RolloutView, reward: Scored, votes_R: Bools, *, estimate: Estimate, singleton: str, declared: dict[str, str | float]
) -> Advantages:
    """Advantages of whole rollouts from the deviation of each reward from the mean of its population's voters.

    Args:
        estimate: from deviation, voters and squared deviations to the advantage.
        singleton: advantage of the only voter of a population: `zero`, or its `reward`.
        declared: conventions beside population, singleton and zero variance.
    """
    chosen("singleton", singleton, ("zero", "reward"))
    voters = voters_of(view, reward, votes_R)
    votes, population_R = voters.votes_R, voters.population_R
    size = int(population_R.max(initial=-1)) + 1
    groups = groups_of(voters.reward_R[votes], population_R[votes], size)
    n_R = groups.n_P[population_R]
    several_R, alone_R = votes & (n_R >= 2), votes & (n_R == 1)
    deviation_R = np.where(several_R, groups.deviation_N(voters.reward_R, population_R), 0.0)
    advantage_R = np.where(several_R, estimate(deviation_R, n_R.astype(np.float64), groups.square_P[population_R]), 0.0)
    total = largest_sum(advantage_R, population_R, size)
    if singleton == "reward":
        advantage_R = np.where(alone_R, voters.reward_R, advantage_R)
    name = SINGLETON if singleton == "zero" else SINGLETON_REWARD
    path_R = tuple(name if alone else path for alone, path in zip(alone_R, voters.path_R, strict=True))
    tied_P = groups.tied_P & (groups.n_P >= 2)
    columns = Columns(
        spread(view, advantage_R), path_R, tuple(advantage_R.tolist()),
        {"zero_variance_populations": int(tied_P.sum()), "zero_variance_rollouts": int((several_R & tied_P[population_R]).sum())},
        {"sum_over_voters": total},
    )  # fmt: skip
    return told(columns, {"population": POPULATION, "singleton": singleton, **declared})
