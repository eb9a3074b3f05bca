"""What is in the loss, and how much of it there is by rollout and by row. Pure."""

import numpy as np

from ledger.errors import MethodError
from training.view import Bools, Floats, Ints, RolloutView


def trained(view: RolloutView, trains_R: Bools, mask_T: Bools) -> Bools:
    """Tokens of `mask_T` whose rollout trains, shape (T,).

    Raises:
        MethodError: a shape is not the view's.
    """
    if trains_R.shape != (view.rollouts,) or mask_T.shape != view.row_T.shape:
        raise MethodError(f"shapes {trains_R.shape} and {mask_T.shape}; allowed: ({view.rollouts},) rollouts and {view.row_T.shape} tokens")
    return mask_T & trains_R[view.rollout_T]


def shared(trained_T: Bools, owner_T: Ints) -> tuple[Floats, int]:
    """1 / (trained tokens of the token's owner), 0 where not trained, and the number of owners with a trained token."""
    count_N = np.bincount(owner_T[trained_T])
    share_T = np.zeros(len(trained_T))
    share_T[trained_T] = 1.0 / count_N[owner_T[trained_T]]
    return share_T, int(np.count_nonzero(count_N))
