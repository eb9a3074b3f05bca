"""Drops rollouts that were sampled too many updates ago."""

from collections.abc import Sequence

import numpy as np

from ledger.errors import MethodError
from training.filters import Kept
from training.filters._declared import judges_lag
from training.rewards import Scored
from training.view import RolloutView, TaskStatistics


@judges_lag
def stale(view: RolloutView, stats_B: Sequence[TaskStatistics], reward: Scored, *, max_lag: int = 0) -> Kept:
    """Keeps every rollout but those whose oldest trained token was sampled more than `max_lag` updates before the version that is trained.

    The oldest token decides, not the mean: a rollout that went on while the weights were refreshed is as old as its first call. A rollout
    of which a trained step's lag is not known is dropped too. What is dropped does not vote in baselines either.

    Args:
        view: columns along R; `lag_S` is in updates, NaN where not known.
        stats_B: not used.
        reward: not used.
        max_lag: updates, 0 or more; 0 keeps what is on policy.
    Returns:
        Reason `stale:<lag>` or `stale:unknown` for what is dropped, route `refill`; counters: dropped rollouts and tokens, rollouts of
        unknown lag, and the largest lag that was kept.
    Raises:
        MethodError: `max_lag` is not a whole number of 0 or more, or the view has no lag for each step.

    Source: AReaL, arXiv 2505.24298, staleness-aware training. Released code departs: AReaL bounds what is admitted to sampling,
    (max staleness + version + 1) x batch size less what was admitted, and drops nothing that was sampled; prime-rl ages a rollout under
    way at each new version and cancels its group above max_off_policy_steps, so one that ended in time is kept however long it waits.
    """
    if isinstance(max_lag, bool) or not isinstance(max_lag, int) or max_lag < 0:
        raise MethodError(f"max_lag is {max_lag!r}; allowed: a whole number of updates, 0 or more")
    if len(view.lag_S) != len(view.rollout_S):
        raise MethodError(f"{len(view.lag_S)} lags for {len(view.rollout_S)} steps; allowed: one a step, NaN where not known")
    trained_S = np.zeros(len(view.rollout_S), dtype=np.bool_)
    trained_S[view.step_T[view.mask_T]] = True
    lag_R = np.zeros(view.rollouts)
    # What is not known counts as older than anything that is.
    np.maximum.at(lag_R, view.rollout_S[trained_S], np.nan_to_num(view.lag_S[trained_S], nan=np.inf))
    drop_R, unknown_R = lag_R > max_lag, np.isinf(lag_R)
    reason_R = tuple(
        "" if not drop else "stale:unknown" if unknown else f"stale:{int(lag)}"
        for drop, unknown, lag in zip(drop_R, unknown_R, lag_R, strict=True)
    )
    return Kept(
        keep_R=~drop_R,
        weight_R=np.ones(view.rollouts),
        reason_R=reason_R,
        route_R=tuple("refill" if drop else "" for drop in drop_R),
        counters={
            "dropped_rollouts": int(drop_R.sum()),
            "dropped_tokens": int(np.count_nonzero(view.mask_T & drop_R[view.rollout_T])),
            "unknown_lag": int(unknown_R.sum()),
            "largest_lag_kept": int(lag_R[~drop_R].max(initial=0)),
        },
    )
