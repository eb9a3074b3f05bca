"""Reward less the mean of its population: the group baseline without a standard deviation (Dr. GRPO)."""

from collections.abc import Mapping
from typing import Literal

from training.advantages import Advantages
from training.advantages._groups import by_population
from training.rewards import Scored
from training.view import Bools, RolloutView


def group_mean(
    view: RolloutView, reward: Scored, votes_R: Bools, scores: Mapping[str, Scored], *, singleton: Literal["zero", "reward"] = "zero"
) -> Advantages:
    """A_i = R_i - mean of R over the voters of its population, the same on every trained token of the rollout, in units of the reward.

    The population is group x kind x fork x participant; a rollout counts once, however many rows it has.

    Args:
        view: columns along R and T.
        reward: rewards along R; None where there is none: advantage 0 and path `fallback:no_reward`.
        votes_R: who shapes the baseline, shape (R,); the others have advantage 0 and path `fallback:no_vote`.
        scores: not used.
        singleton: advantage of the only voter of a population: `zero`, or its `reward`.
    Raises:
        MethodError: shapes differ, a reward is not finite, a rollout stands twice, or `singleton` is none of the two.

    Source: Dr. GRPO, arXiv 2503.20783, section 3.2. Released code (verl with norm_adv_by_std_in_grpo = False) has a mean of 0 for a
    population of one, which is `singleton = "reward"`, and lets every row vote.
    """
    return by_population(
        view, reward, votes_R, estimate=lambda deviation_R, n_R, square_R: deviation_R, singleton=singleton, declared={"std": "none"}
    )
