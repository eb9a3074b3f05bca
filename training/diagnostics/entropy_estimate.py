"""The policy's entropy, estimated from what it sampled."""

from collections.abc import Mapping

import numpy as np

from training.diagnostics import Measured, UpdateColumns
from training.diagnostics._sampled import fits
from training.rewards import Scored
from training.view import RolloutView


def entropy_estimate(view: RolloutView, reward: Scored, update: UpdateColumns) -> Mapping[str, Measured]:
    """Mean of -log p (behaviour) over the masked tokens, by token and by rollout, in nats a token.

    Args:
        view: columns along R and T, with the behaviour log-probabilities.
        reward: not used.
        update: not used but for its shapes.
    Returns:
        `entropy` over tokens, and `entropy_of_rollouts`, each rollout's mean counted once; None where no log-probability is known.
    Raises:
        MethodError: shapes differ.

    Source: Monte Carlo estimate of H = -E log p over the policy's own samples; survey S59, token-entropy baseline.
    """
    fits(view, update)
    known_T = view.mask_T & np.isfinite(view.behaviour_logprob_T)
    unknown = int(np.count_nonzero(view.mask_T & ~known_T))
    caveats: tuple[str, ...] = ("unbiased only for tokens sampled from the plain distribution",)
    caveats += (f"{unknown} masked tokens left out: behaviour unknown",) if unknown else ()
    surprise_N, rollout_N = -view.behaviour_logprob_T[known_T], view.rollout_T[known_T]
    count_R = np.bincount(rollout_N, minlength=view.rollouts)
    sum_R = np.bincount(rollout_N, weights=surprise_N, minlength=view.rollouts)
    seen = count_R > 0
    return {
        "entropy": Measured(float(surprise_N.mean()) if len(surprise_N) else None, len(surprise_N), "nats", caveats),
        "entropy_of_rollouts": Measured(
            float((sum_R[seen] / count_R[seen]).mean()) if seen.any() else None, int(seen.sum()), "nats", caveats
        ),
    }  # fmt: skip
