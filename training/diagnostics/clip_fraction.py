"""On how many tokens the bounds of PPO's ratio hold."""

from collections.abc import Mapping

import numpy as np

from ledger.errors import MethodError
from training.diagnostics import Measured, UpdateColumns
from training.diagnostics._sampled import gap
from training.rewards import Scored
from training.view import RolloutView


def clip_fraction(
    view: RolloutView, reward: Scored, update: UpdateColumns, *, eps_low: float = 0.2, eps_high: float = 0.28
) -> Mapping[str, Measured]:
    """Share of masked tokens whose ratio new / proximal is out of bounds, and of those where that stops the gradient.

    Args:
        view: columns along T.
        reward: not used.
        update: advantages, and `new` and `proximal` in `logprobs`, nats.
        eps_low, eps_high: bounds [1 - eps_low, 1 + eps_high], at least 0.
    Returns:
        `outside` (ratio out of bounds), `clipped` (above for A > 0, below for A < 0: no gradient there), `ratio_max` and `ratio_min`.
    Raises:
        MethodError: shapes differ, or a bound is negative.

    Source: PPO, arXiv 1707.06347, equation 7; `clipped` is what verl and TRL report as their clip ratio.
    """
    if not (eps_low >= 0 and eps_high >= 0):
        raise MethodError(f"eps_low {eps_low}, eps_high {eps_high}; allowed: at least 0")
    found = gap(view, update, "new", "proximal")
    ratio_N = np.exp(found.first_N - found.second_N) if len(found.first_N) else np.ones(1)
    adv_N = found.adv_N if len(found.first_N) else np.zeros(1)
    above_N, below_N = ratio_N > 1 + eps_high, ratio_N < 1 - eps_low
    return {
        "outside": found.measured(float((above_N | below_N).mean()), "share of tokens"),
        "clipped": found.measured(float(((above_N & (adv_N > 0)) | (below_N & (adv_N < 0))).mean()), "share of tokens"),
        "ratio_max": found.measured(float(ratio_N.max()), "ratio"),
        "ratio_min": found.measured(float(ratio_N.min()), "ratio"),
    }
