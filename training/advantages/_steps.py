"""Rewards and discounted sums along the steps of each rollout. Pure."""

import numpy as np

from training.advantages._voters import Voters
from training.view import Floats, Ints, RolloutView


def later_S(rollout_S: Ints) -> Ints:
    """How many steps of the same rollout come after each step."""
    order = np.argsort(rollout_S, kind="stable")
    ordered = rollout_S[order]
    later = np.searchsorted(ordered, ordered, side="right") - 1 - np.arange(len(ordered))
    back_S = np.empty(len(later), dtype=np.int64)
    back_S[order] = later
    return back_S


def discounted_S(value_S: Floats, rollout_S: Ints, factor: float) -> Floats:
    """For each step the sum over it and the later ones of its rollout of factor^distance x value."""
    later = later_S(rollout_S)
    total_S: Floats = value_S.astype(np.float64)
    order = np.argsort(rollout_S, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    for distance in range(1, int(later.max(initial=0)) + 1):
        here = np.flatnonzero(later == distance)
        total_S[here] += factor * total_S[order[place[here] + 1]]
    return total_S


def reward_at_S(view: RolloutView, voters: Voters, *, step_rewards: bool) -> Floats:
    """Each voter's reward at its last step, beside the rewards of the steps themselves where these count."""
    reward_S = view.reward_S.astype(np.float64) if step_rewards else np.zeros(len(view.rollout_S))
    last = later_S(view.rollout_S) == 0
    given_S: Floats = reward_S + np.where(last, voters.reward_R[view.rollout_S], 0.0)
    return given_S
