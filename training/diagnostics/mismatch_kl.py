"""How far the trainer's log-probabilities are from those of the engine that sampled."""

from collections.abc import Mapping

import numpy as np

from training.diagnostics import Measured, UpdateColumns
from training.diagnostics._sampled import gap
from training.rewards import Scored
from training.view import RolloutView


def mismatch_kl(view: RolloutView, reward: Scored, update: UpdateColumns) -> Mapping[str, Measured]:
    """KL(behaviour || proximal) as k1 and k3, and mean and largest gap, over the masked tokens; 0 for one policy with one numerics.

    Args:
        view: columns along T.
        reward: not used.
        update: `behaviour` and `proximal` in `logprobs`, nats.
    Returns:
        `k1` = mean of behaviour - proximal (may be negative), `k3` = mean of exp(d) - 1 - d with d = proximal - behaviour (never negative),
        `gap_mean` and `gap_max` of |d|, in nats; None without a token that has both.
    Raises:
        MethodError: shapes differ.

    Source: Schulman 2020, Approximating KL divergence; case E4 of the field reports: a high value after a resume means that weights were
    not synchronised.
    """
    found = gap(view, update, "behaviour", "proximal")
    d_N = found.second_N - found.first_N
    gap_N = np.abs(d_N) if len(d_N) else np.zeros(1)
    return {
        "k1": found.measured(float(-d_N.sum() / max(len(d_N), 1)), "nats"),
        "k3": found.measured(float((np.expm1(d_N) - d_N).sum() / max(len(d_N), 1)), "nats"),
        "gap_mean": found.measured(float(gap_N.mean()), "nats"),
        "gap_max": found.measured(float(gap_N.max()), "nats"),
    }
