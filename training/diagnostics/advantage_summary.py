"""What the advantages of an update look like."""

from collections.abc import Mapping

import numpy as np

from training.diagnostics import Measured, UpdateColumns
from training.diagnostics._sampled import fits
from training.rewards import Scored
from training.view import RolloutView


def advantage_summary(view: RolloutView, reward: Scored, update: UpdateColumns) -> Mapping[str, Measured]:
    """Mean, standard deviation, smallest and largest advantage over the tokens with a weight, shares above and at 0, and dead rollouts.

    Args:
        view: columns along R and T.
        reward: not used.
        update: advantages (units of the reward or of its deviation) and weights.
    Returns:
        `mean`, `std` (population), `min`, `max`, `positive_share`, `zero_share` over tokens, and `zero_rollouts`, the share of trained
        rollouts whose advantages are all 0: these have no policy gradient.
    Raises:
        MethodError: shapes differ.

    Source: survey section 3.3, what every estimator's page shows.
    """
    fits(view, update)
    trained_T = update.weight_T != 0
    adv_N, n = update.adv_T[trained_T], int(trained_T.sum())
    rollout_N = view.rollout_T[trained_T]
    tokens_R = np.bincount(rollout_N, minlength=view.rollouts)
    live_R = np.bincount(rollout_N[adv_N != 0], minlength=view.rollouts)
    rollouts = int(np.count_nonzero(tokens_R))
    if not n:
        none = Measured(None, 0, "tokens", ("no token has a weight",))
        return dict.fromkeys(("mean", "std", "min", "max", "positive_share", "zero_share", "zero_rollouts"), none)
    values = {"mean": adv_N.mean(), "std": adv_N.std(), "min": adv_N.min(), "max": adv_N.max()}
    shares = {"positive_share": (adv_N > 0).mean(), "zero_share": (adv_N == 0).mean()}
    dead = int(np.count_nonzero((tokens_R > 0) & (live_R == 0)))
    return {
        **{name: Measured(float(value), n, "advantage") for name, value in values.items()},
        **{name: Measured(float(value), n, "share of tokens") for name, value in shares.items()},
        "zero_rollouts": Measured(dead / rollouts, rollouts, "share of rollouts"),
    }
