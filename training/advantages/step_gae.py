"""Generalised advantage estimation along the steps (model calls) of each rollout."""

from collections.abc import Mapping

import numpy as np

from ledger.errors import MethodError
from training.advantages import Advantages
from training.advantages._groups import groups_of
from training.advantages._steps import discounted_S, later_S, reward_at_S
from training.advantages._voters import SINGLETON, Columns, spread_steps, told, voters_of
from training.rewards import Scored
from training.view import Bools, Floats, Ints, RolloutView


def step_gae(
    view: RolloutView, reward: Scored, votes_R: Bools, scores: Mapping[str, Scored], *,
    gamma: float = 1.0, lam: float = 1.0, step_rewards: bool = False, whiten: bool = True, eps: float = 1e-8,
) -> Advantages:  # fmt: skip
    """A_t = sum over k of (gamma lam)^k delta_(t+k), delta_t = r_t + gamma V_(t+1) - V_t, a step being one model call.

    The last step of a rollout gets its reward, V after it is 0. In units of the reward, or of the standard deviation over all voters'
    steps of the batch when whitened. Every trained token has the advantage of the step that sampled it.

    Args:
        view: columns along R, S and T; steps in order within a rollout.
        reward: rewards along R; None where there is none: advantage 0 and path `fallback:no_reward`.
        votes_R: who shapes the whitening, shape (R,); the others have advantage 0 and path `fallback:no_vote`.
        scores: `value` along S, the value before each step in units of the reward; without it V = 0, counted as `value_zero`.
        gamma, lam: in [0, 1].
        step_rewards: add the rewards of the steps themselves.
        whiten: subtract the mean and divide by the unbiased deviation plus eps, over the steps of all voters; fewer than two: 0.
        eps: at least 0.
    Raises:
        MethodError: shapes differ, a reward or value is missing or not finite, a trained token has no step, or a parameter is out of range.

    Source: GAE, arXiv 1506.02438, equation 16; at the level of steps Agent-R1, arXiv 2511.14460, section 3. verl and Agent-R1 whiten by
    rsqrt(var + 1e-8), here 1 / (std + eps); token-level PPO whitens over tokens, so long steps weigh more there.
    """
    if not (0 <= gamma <= 1 and 0 <= lam <= 1 and eps >= 0):
        raise MethodError(f"gamma {gamma}, lam {lam}, eps {eps}; allowed: gamma and lam in [0, 1], eps at least 0")
    voters = voters_of(view, reward, votes_R)
    value_S = _values(view, scores)
    last_S = later_S(view.rollout_S) == 0
    next_S = np.where(last_S, 0.0, value_S[_following(view.rollout_S)])
    delta_S = reward_at_S(view, voters, step_rewards=step_rewards) + gamma * next_S - value_S
    votes_S = voters.votes_R[view.rollout_S]
    advantage_S = np.where(votes_S, discounted_S(delta_S, view.rollout_S, gamma * lam), 0.0)
    path_R, tied = voters.path_R, 0
    if whiten:
        one_S = np.zeros(len(advantage_S), dtype=np.int64)
        groups = groups_of(advantage_S[votes_S], one_S[votes_S], 1)
        tied = int(groups.tied_P[0] and groups.n_P[0] >= 2)
        if groups.n_P[0] < 2:
            advantage_S = np.zeros_like(advantage_S)
            path_R = tuple(SINGLETON if path == "native" else path for path in path_R)
        else:
            advantage_S = np.where(votes_S, groups.scaled_N(advantage_S, one_S, "unbiased", eps), 0.0)
    columns = Columns(
        spread_steps(view, advantage_S), path_R,
        counters={"steps": int(votes_S.sum()), "value_zero": int("value" not in scores), "zero_variance_populations": tied},
        invariants={"mean_over_steps": float(advantage_S[votes_S].mean())} if whiten and votes_S.any() else {},
    )  # fmt: skip
    return told(columns, {"population": "steps of the batch" if whiten else "none", "std": "unbiased" if whiten else "none", "eps": eps})


def _values(view: RolloutView, scores: Mapping[str, Scored]) -> Floats:
    if "value" not in scores:
        return np.zeros(len(view.rollout_S))
    given = scores["value"].value_R
    if len(given) != len(view.rollout_S):
        raise MethodError(f"{len(given)} values for {len(view.rollout_S)} steps; allowed: one a step")
    value_S = np.array(given, dtype=np.float64)
    if not np.isfinite(value_S).all():
        raise MethodError(
            f"{np.count_nonzero(~np.isfinite(value_S))} steps have no finite value; allowed: a value for every step, or no scores"
        )
    return value_S


def _following(rollout_S: Ints) -> Ints:
    """Index of the next step of the same rollout; of any step for the last one."""
    order = np.argsort(rollout_S, kind="stable")
    after = np.empty_like(order)
    after[order] = np.roll(order, -1)
    return after
