"""Reward less the mean of the others of its population (RLOO)."""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from training.advantages import Advantages
from training.advantages._groups import by_population
from training.rewards import Scored
from training.view import Bools, RolloutView


def leave_one_out(
    view: RolloutView, reward: Scored, votes_R: Bools, scores: Mapping[str, Scored], *, singleton: Literal["zero", "reward"] = "zero"
) -> Advantages:
    """A_i = R_i - mean of R over the other voters of its population, which is n / (n - 1) times the deviation from the mean.

    In units of the reward, the same on every trained token of the rollout. The population is group x kind x fork x participant.

    Args:
        view: columns along R and T.
        reward: rewards along R; None where there is none: advantage 0 and path `fallback:no_reward`.
        votes_R: who shapes the baseline, shape (R,); the others have advantage 0 and path `fallback:no_vote`.
        scores: not used.
        singleton: advantage of the only voter of a population: `zero`, or its `reward`.
    Raises:
        MethodError: shapes differ, a reward is not finite, a rollout stands twice, or `singleton` is none of the two.

    Source: RLOO, arXiv 2402.14740, the REINFORCE leave-one-out estimator. verl keeps the reward of a population of one.
    """
    return by_population(
        view, reward, votes_R, estimate=lambda deviation_R, n_R, square_R: deviation_R * n_R / np.maximum(n_R - 1, 1), singleton=singleton,
        declared={"std": "none", "baseline": "others"},
    )  # fmt: skip
