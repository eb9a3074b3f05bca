"""Advantages: how much better than its population each sampled token's rollout did. One file an estimator."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ledger.methods import Family
from training.rewards import Scored
from training.view import Bools, Floats, RolloutView


@dataclass(frozen=True, eq=False)
class Advantages:
    """What an estimator says.

    Attributes:
        adv_T: advantage of each token in units of the reward (or of its standard deviation), 0 where `view.mask_T` is False.
        path_R: `native`, or `fallback:<reason>` such as `fallback:singleton`.
        counters: how often each fallback and special case was taken.
        invariants: named numbers that must hold, such as `sum_over_voters` = 0.
        advantage_R: the same along R where the estimator has one number a rollout; empty otherwise.
        declared: the conventions that were followed: population, std, eps, singleton, zero_variance, and what else can be chosen.
    """

    adv_T: Floats
    path_R: tuple[str, ...]
    counters: Mapping[str, int] = field(default_factory=dict)
    invariants: Mapping[str, float] = field(default_factory=dict)
    advantage_R: tuple[float, ...] = ()
    declared: Mapping[str, str | float] = field(default_factory=dict)


class Advantage(Protocol):
    """The signature of every advantage estimator."""

    def __call__(self, view: RolloutView, reward: Scored, votes_R: Bools, scores: Mapping[str, Scored]) -> Advantages:
        """The advantage of each token. Rollouts that do not vote shape no baseline and no statistic."""
        ...


advantages: Family[Advantage] = Family("training.advantages")
