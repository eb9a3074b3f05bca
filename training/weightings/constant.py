"""One weight for every trained token, from a fixed length instead of the lengths seen (Dr. GRPO)."""

from typing import Literal

import numpy as np

from ledger.errors import MethodError
from training.view import Bools, Floats, RolloutView
from training.weightings._counts import shared, trained
from training.weightings._declared import slice_invariant


@slice_invariant(True)
def constant(
    view: RolloutView, trains_R: Bools, mask_T: Bools, *, length: float = 1024.0, mean_over: Literal["rollouts", "nothing"] = "rollouts"
) -> Floats:
    """1 / (length x rollouts) on each trained token, 0 elsewhere, shape (T,); the sum is the mean trained length over `length`.

    With `mean_over = "nothing"` the weight is 1 / length and the sum grows with the batch. No weight depends on any rollout's own length.

    Args:
        view: columns along R, Q and T.
        trains_R: rollouts in the loss, shape (R,).
        mask_T: tokens that the term covers, shape (T,).
        length: fixed length in tokens, above 0; the longest that a rollout may have.
        mean_over: divide by the number of rollouts with a trained token too, or by nothing else.
    Raises:
        MethodError: shapes differ, or a parameter is out of its range.

    Source: Dr. GRPO, arXiv 2503.20783, section 3.2 and listing 1 (masked_mean with constant MAX_TOKENS). verl's seq-mean-token-sum-norm
    takes the padded width of the batch as the constant and averages over rows, unless told otherwise.
    """
    if not length > 0 or mean_over not in ("rollouts", "nothing"):
        raise MethodError(f"length {length}, mean_over {mean_over!r}; allowed: above 0, and 'rollouts' or 'nothing'")
    trained_T = trained(view, trains_R, mask_T)
    rollouts = shared(trained_T, view.rollout_T)[1] if mean_over == "rollouts" else 1
    return np.where(trained_T, 1.0 / (length * max(rollouts, 1)), 0.0)
