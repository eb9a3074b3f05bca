"""How much probability truncated sampling had kept, read from the gap between trainer and engine."""

from collections.abc import Mapping

import numpy as np

from training.diagnostics import Measured, UpdateColumns
from training.diagnostics._sampled import gap
from training.rewards import Scored
from training.view import RolloutView


def kept_mass_ratio(view: RolloutView, reward: Scored, update: UpdateColumns) -> Mapping[str, Measured]:
    """exp(proximal - behaviour) over the masked tokens: the kept mass S where the engine renormalised over what top-p or top-k had left.

    An engine that samples from a truncated distribution reports log(p / S), the trainer log p, so with the same weights the ratio is S for
    every token, below 1 without any staleness.

    Args:
        view: columns along T.
        reward: not used.
        update: `behaviour` and `proximal` in `logprobs`, nats.
    Returns:
        `mean`, `min` and `max` of the ratio, and `below_one`, the share of tokens with a ratio under 1 - 1e-3.
    Raises:
        MethodError: shapes differ.

    Source: case F9 of the field reports: ratio = S for every token.
    """
    found = gap(view, update, "proximal", "behaviour")
    ratio_N = np.exp(found.first_N - found.second_N) if len(found.first_N) else np.ones(1)
    caveat = "a kept mass only where both are of the same weights"
    values = {"mean": ratio_N.mean(), "min": ratio_N.min(), "max": ratio_N.max()}
    return {
        **{name: found.measured(float(value), "ratio", caveat) for name, value in values.items()},
        "below_one": found.measured(float((ratio_N < 1 - 1e-3).mean()), "share of tokens", caveat),
    }
