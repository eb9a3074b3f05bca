"""Who got how much of an update's gradient, before the objective's own factors."""

from collections.abc import Mapping

import numpy as np

from training.diagnostics import Measured, UpdateColumns
from training.diagnostics._sampled import fits
from training.rewards import Scored
from training.view import RolloutView


def weight_shares(view: RolloutView, reward: Scored, update: UpdateColumns) -> Mapping[str, Measured]:
    """Each rollout's share of the sum of |weight x advantage|, the largest share, and how many equal rollouts that would amount to.

    Args:
        view: columns along R and T.
        reward: not used.
        update: advantages and weights.
    Returns:
        `rollout:<id>` for each rollout with a weighted token (0 where its advantages are 0), `largest`, and `effective_rollouts` =
        1 / sum of squared shares. None where the sum is 0.
    Raises:
        MethodError: shapes differ.

    Source: Kish's effective sample size, Survey Sampling 1965, section 8.2; survey AUD-12: weights a rollout are shown.
    """
    fits(view, update)
    trained_T = update.weight_T != 0
    credit_R = np.bincount(view.rollout_T, weights=np.abs(update.weight_T * update.adv_T), minlength=view.rollouts)
    tokens_R = np.bincount(view.rollout_T[trained_T], minlength=view.rollouts)
    total = float(credit_R.sum())
    if total == 0:
        none = Measured(None, int(trained_T.sum()), "share", ("no token has both weight and advantage",))
        return {"largest": none, "effective_rollouts": none}
    share_R = credit_R / total
    by_id: dict[str, tuple[float, int]] = {}
    for rollout_id, share, tokens in zip(view.rollout_id_R, share_R.tolist(), tokens_R.tolist(), strict=True):
        if tokens:
            before = by_id.get(rollout_id, (0.0, 0))
            by_id[rollout_id] = (before[0] + share, before[1] + tokens)
    shares = np.array([share for share, _ in by_id.values()])
    return {
        "largest": Measured(float(shares.max()), len(by_id), "share"),
        "effective_rollouts": Measured(float(1.0 / (shares**2).sum()), len(by_id), "rollouts"),
        **{f"rollout:{rollout_id}": Measured(share, tokens, "share") for rollout_id, (share, tokens) in by_id.items()},
    }
