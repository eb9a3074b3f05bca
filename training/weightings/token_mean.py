"""Every trained token of the update weighs the same."""

import numpy as np

from training.view import Bools, Floats, RolloutView
from training.weightings._counts import trained
from training.weightings._declared import slice_invariant


@slice_invariant(True)
def token_mean(view: RolloutView, trains_R: Bools, mask_T: Bools) -> Floats:
    """1 / N on each of the update's N trained tokens, 0 elsewhere, shape (T,); the sum is 1, or 0 when nothing is trained.

    A rollout weighs by its length. N is the sum of the final mask over the whole update, never of a micro-batch.

    Args:
        view: columns along R, Q and T.
        trains_R: rollouts in the loss, shape (R,).
        mask_T: tokens that the term covers, shape (T,).
    Raises:
        MethodError: shapes differ.

    Source: DAPO, arXiv 2503.14476, section 3.3. Released code departs: verl's token-mean divides by the tokens of the mini-batch, and
    before its global count by those of each micro-batch and process.
    """
    trained_T = trained(view, trains_R, mask_T)
    return np.where(trained_T, 1.0 / max(int(trained_T.sum()), 1), 0.0)
