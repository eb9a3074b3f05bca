"""Whether what was trained is shorter or longer than what was dispatched."""

from collections.abc import Mapping

import numpy as np
from scipy.stats import ks_2samp

from training.diagnostics import Measured, UpdateColumns
from training.diagnostics._sampled import fits
from training.rewards import Scored
from training.view import RolloutView


def length_bias(view: RolloutView, reward: Scored, update: UpdateColumns) -> Mapping[str, Measured]:
    """Mean sampled tokens of trained rollouts over that of all rollouts, the distance of both distributions, and both means.

    Discarding what is stale, truncated or late drops long rollouts first, so slow problems are trained less; a ratio under 1 shows it.

    Args:
        view: columns along R and T, with every rollout that was dispatched and sampled anything.
        reward: not used.
        update: weights; a rollout is trained if one of its tokens has a weight.
    Returns:
        `ratio`, `distance` (largest difference of the cumulative distributions, Kolmogorov-Smirnov, in [0, 1]), `trained_mean` and
        `dispatched_mean` in tokens. None where no rollout is trained.
    Raises:
        MethodError: shapes differ.

    Source: case F3 of the field reports on staleness: trained lengths must be distributed as dispatched ones.
    """
    fits(view, update)
    length_R = np.bincount(view.rollout_T[view.mask_T], minlength=view.rollouts)
    trained_R = np.bincount(view.rollout_T[update.weight_T != 0], minlength=view.rollouts) > 0
    dispatched_N = length_R[length_R > 0]
    trained_N = length_R[trained_R & (length_R > 0)]
    if not len(trained_N):
        none = Measured(None, len(dispatched_N), "rollouts", ("no rollout is trained",))
        return dict.fromkeys(("ratio", "distance", "trained_mean", "dispatched_mean"), none)
    n, silent = len(trained_N), view.rollouts - len(dispatched_N)
    caveats = (f"{silent} rollouts without sampled tokens left out",) if silent else ()
    return {
        "ratio": Measured(float(trained_N.mean() / dispatched_N.mean()), n, "ratio", caveats),
        "distance": Measured(float(ks_2samp(trained_N, dispatched_N).statistic), n, "share", caveats),
        "trained_mean": Measured(float(trained_N.mean()), n, "tokens", caveats),
        "dispatched_mean": Measured(float(dispatched_N.mean()), len(dispatched_N), "tokens", caveats),
    }
