"""Group baselines for whole rollouts and for equal states within the group (GiGPO, group in group)."""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from ledger.errors import MethodError
from training.advantages import Advantages
from training.advantages._groups import groups_of, largest_sum
from training.advantages._steps import discounted_S, reward_at_S
from training.advantages._voters import POPULATION, SINGLETON, Columns, Voters, chosen, spread_steps, told, voters_of
from training.rewards import Scored
from training.view import Bools, Ints, RolloutView, numbered


def state_group(
    view: RolloutView, reward: Scored, votes_R: Bools, scores: Mapping[str, Scored], *,
    step_weight: float = 1.0, gamma: float = 0.95, std: Literal["none", "unbiased", "population"] = "none", eps: float = 1e-6,
    episode_baseline: Literal["rollouts", "steps"] = "rollouts", step_rewards: bool = False,
) -> Advantages:  # fmt: skip
    """A_t = episode part + step_weight x step part, on every token that step t sampled, in units of the reward (or of its deviation).

    Episode part: R_i less the mean over the voters of its population. Step part: the discounted return from the step less the mean over all
    voters' steps of the population that started from the same state; a state met once gives 0.

    Args:
        view: columns along R, S and T; `state_S` names the state before each step, and an empty one matches no other.
        reward: rewards along R, given to the last step; None where there is none: advantage 0 and path `fallback:no_reward`.
        votes_R: who shapes both baselines, shape (R,); the others have advantage 0 and path `fallback:no_vote`.
        scores: not used.
        step_weight: factor on the step part, at least 0.
        gamma: discount a step, in [0, 1].
        std: `none` subtracts means alone; otherwise both parts are divided by that deviation plus eps.
        eps: at least 0.
        episode_baseline: `rollouts` counts each voter once; `steps` counts it once a step, so that longer rollouts weigh more.
        step_rewards: add the rewards of the steps themselves to the returns.
    Raises:
        MethodError: shapes differ, a reward is not finite, a trained token has no step, or a parameter is out of its range.

    Source: GiGPO, arXiv 2505.10978, equations 3, 7 and 8. Released code (verl-agent, gigpo/core_gigpo.py) takes the episode mean across
    steps (compute_mean_std_cross_steps = True), which is `episode_baseline = "steps"`, and gives a group of one mean 0, so its reward; here
    0.
    """
    chosen("std", std, ("none", "unbiased", "population"))
    chosen("episode_baseline", episode_baseline, ("rollouts", "steps"))
    if not (0 <= gamma <= 1 and step_weight >= 0 and eps >= 0):
        raise MethodError(f"gamma {gamma}, step_weight {step_weight}, eps {eps}; allowed: gamma in [0, 1], the others at least 0")
    voters = voters_of(view, reward, votes_R)
    population_R = voters.population_R
    size = int(population_R.max(initial=-1)) + 1
    alone_R = voters.votes_R & (np.bincount(population_R[voters.votes_R], minlength=size)[population_R] < 2)
    counts_R = voters.votes_R & ~alone_R
    times_R = (
        np.bincount(view.rollout_S, minlength=view.rollouts) if episode_baseline == "steps" else np.ones(view.rollouts, dtype=np.int64)
    )
    times_R = np.where(counts_R, times_R, 0)
    groups = groups_of(np.repeat(voters.reward_R, times_R), np.repeat(population_R, times_R), size)
    episode_R = np.where(counts_R, groups.scaled_N(voters.reward_R, population_R, std, eps), 0.0)
    return_S = discounted_S(reward_at_S(view, voters, step_rewards=step_rewards), view.rollout_S, gamma)
    votes_S = counts_R[view.rollout_S]
    state_S = _states(view, voters)
    states = groups_of(return_S[votes_S], state_S[votes_S], int(state_S.max(initial=-1)) + 1)
    step_S = np.where(votes_S, states.scaled_N(return_S, state_S, std, eps), 0.0)
    advantage_S = episode_R[view.rollout_S] + step_weight * step_S
    columns = Columns(
        spread_steps(view, advantage_S), tuple(SINGLETON if alone else path for alone, path in zip(alone_R, voters.path_R, strict=True)),
        counters={
            "steps": int(votes_S.sum()), "states_met_once": int((states.n_P == 1).sum()),
            "states_shared": int((states.n_P >= 2).sum()), "states_unknown": int(np.count_nonzero(_unknown(view) & votes_S)),
            "zero_variance_populations": int((groups.tied_P & (groups.n_P >= 2)).sum()),
        },
        invariants={
            "sum_over_states": largest_sum(step_S, state_S, len(states.n_P)),
            "sum_over_voters": largest_sum(episode_R * times_R, population_R, size),
        },
    )  # fmt: skip
    declared = {"population": POPULATION, "states": "population x state digest", "episode_baseline": episode_baseline, "singleton": "zero"}
    return told(columns, {**declared, "std": std, "eps": eps, "gamma": gamma})


def _unknown(view: RolloutView) -> Bools:
    return np.array([state == "" for state in view.state_S], dtype=np.bool_)


def _states(view: RolloutView, voters: Voters) -> Ints:
    """Number of each step's state within its population; a state that is not known has a number of its own."""
    population_S = voters.population_R[view.rollout_S].tolist()
    return numbered([(population, state or step) for step, (population, state) in enumerate(zip(population_S, view.state_S, strict=True))])
