"""Reward less the mean of its population over its standard deviation (GRPO)."""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from ledger.errors import MethodError
from training.advantages import Advantages
from training.advantages._groups import by_population
from training.advantages._voters import chosen
from training.rewards import Scored
from training.view import Bools, Floats, RolloutView


def group_normalised(
    view: RolloutView, reward: Scored, votes_R: Bools, scores: Mapping[str, Scored], *,
    std: Literal["unbiased", "population"] = "unbiased", eps: float = 1e-6, singleton: Literal["zero", "reward"] = "zero",
) -> Advantages:  # fmt: skip
    """A_i = (R_i - mean) / (std + eps) over the voters of its population, the same on every trained token of the rollout.

    In units of the standard deviation. The population is group x kind x fork x participant; a rollout counts once, whatever its rows.

    Args:
        view: columns along R and T.
        reward: rewards along R; None where there is none: advantage 0 and path `fallback:no_reward`.
        votes_R: who shapes mean and deviation, shape (R,); the others have advantage 0 and path `fallback:no_vote`.
        scores: not used.
        std: divisor n - 1 (`unbiased`) or n (`population`).
        eps: added to the standard deviation, at least 0, in units of the reward.
        singleton: advantage of the only voter of a population: `zero`, or its `reward` (path `fallback:singleton_reward`).
    Raises:
        MethodError: shapes differ, a reward is not finite, a rollout stands twice, or a parameter is out of its range.

    Source: GRPO, arXiv 2402.03300, section 4.1.2. Released code departs: verl and TRL divide by the unbiased deviation (torch.std), others
    by the population's; verl gives a population of one mean 0 and deviation 1, so reward / (1 + eps), here exactly the reward; NeMo-RL's
    rule for it is 0.
    """
    chosen("std", std, ("unbiased", "population"))
    if not eps >= 0:
        raise MethodError(f"eps is {eps}; allowed: at least 0")

    def estimate(deviation_R: Floats, n_R: Floats, square_R: Floats) -> Floats:
        spread_R = np.sqrt(square_R / np.maximum(n_R - (std == "unbiased"), 1.0)) + eps
        return np.where(deviation_R == 0, 0.0, deviation_R / np.where(spread_R == 0, 1.0, spread_R))

    return by_population(view, reward, votes_R, estimate=estimate, singleton=singleton, declared={"std": std, "eps": eps})
