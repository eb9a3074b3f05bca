"""Drops rollouts that the trainer would sample with another probability than the engine did."""

from collections.abc import Sequence

import numpy as np

from ledger.errors import MethodError
from training.filters import Kept
from training.filters._declared import reads_trainer
from training.rewards import Scored
from training.view import RolloutView, TaskStatistics


@reads_trainer
def ratio(view: RolloutView, stats_B: Sequence[TaskStatistics], reward: Scored, *, low: float = 0.5, high: float = 2.0) -> Kept:
    """Keeps every rollout but those whose importance ratio is outside of [low, high].

    The ratio is declared as the geometric mean over all trained tokens of the rollout, whatever rows they are in: exp of the mean of
    trainer - behaviour in nats. Unlike the product it does not grow with length, so one pair of bounds fits all rollouts; it is no unbiased
    weight, and weighs nothing here. A rollout without trained tokens is kept. What is dropped does not vote in baselines either.

    Args:
        view: columns along R and T; `trainer_logprob_T` is by the version that is trained, at the temperature of sampling.
        stats_B: not used.
        reward: not used.
        low, high: 0 < low <= 1 <= high.
    Returns:
        Reason `ratio:low`, `ratio:high`, or `ratio:unknown` where a trained token's log-probability is not known or not finite on either
        side (it is never read as a ratio of 1), route `quarantine`; counters: dropped rollouts by reason, dropped tokens.
    Raises:
        MethodError: the bounds do not fit, or the trainer's log-probabilities were not computed.

    Source: Liu et al. 2025, "When Speed Kills Stability" (richardli.xyz/rl-collapse), geometric sequence masking. Released code departs:
    verl (rollout_rs = "geometric") takes the mean over one response row, clamps it to +-20, has 1 / high as low, and only masks the loss,
    so what it rejects still votes; prime-rl masks single tokens, and a whole sequence by its smallest token ratio.
    """
    if not 0 < low <= 1 <= high < np.inf:
        raise MethodError(f"low {low!r} and high {high!r}; allowed: 0 < low <= 1 <= high, finite")
    if view.trainer_logprob_T.shape != view.mask_T.shape:
        raise MethodError(f"trainer log-probabilities of {len(view.trainer_logprob_T)} of {len(view.mask_T)} tokens; allowed: one a token")
    rollout_N, gap_N = view.rollout_T[view.mask_T], (view.trainer_logprob_T - view.behaviour_logprob_T)[view.mask_T]
    known_N = np.isfinite(gap_N)
    unknown_R = np.bincount(rollout_N[~known_N], minlength=view.rollouts) > 0
    count_R = np.bincount(rollout_N, minlength=view.rollouts)
    mean_R = np.bincount(rollout_N, weights=np.where(known_N, gap_N, 0.0), minlength=view.rollouts) / np.maximum(count_R, 1)
    below_R, above_R = ~unknown_R & (mean_R < np.log(low)), ~unknown_R & (mean_R > np.log(high))
    drop_R = below_R | above_R | unknown_R
    names = np.select([below_R, above_R, unknown_R], ["ratio:low", "ratio:high", "ratio:unknown"], "")
    return Kept(
        keep_R=~drop_R,
        weight_R=np.ones(view.rollouts),
        reason_R=tuple(str(name) for name in names),
        route_R=tuple("quarantine" if drop else "" for drop in drop_R),
        counters={
            "below": int(below_R.sum()),
            "above": int(above_R.sum()),
            "unknown": int(unknown_R.sum()),
            "dropped_tokens": int(np.count_nonzero(view.mask_T & drop_R[view.rollout_T])),
        },
    )
