"""The weight that Agent Lightning's released per-rollout mean gives: rollouts weigh the same, their sum depends on the rows."""

from training.view import Bools, Floats, RolloutView
from training.weightings._counts import shared, trained
from training.weightings._declared import slice_invariant


@slice_invariant(False)
def agent_lightning_rows(view: RolloutView, trains_R: Bools, mask_T: Bools) -> Floats:
    """1 / (trained rows x trained tokens of the rollout), 0 where not trained, shape (T,); the sum is trained rollouts / trained rows.

    Here to show and reproduce that divisor: cutting any rollout into more rows shrinks the weight of all, so it is not slice-invariant.

    Args:
        view: columns along R, Q and T.
        trains_R: rollouts in the loss, shape (R,).
        mask_T: tokens that the term covers, shape (T,).
    Raises:
        MethodError: shapes differ.

    Source: Agent Lightning v1.0, arXiv 2608.17528, mean over rollouts; the released per_rollout_mean divides by n_trained_rows instead of
    the number of rollouts, which `rollout_token_mean` has.
    """
    trained_T = trained(view, trains_R, mask_T)
    rows = shared(trained_T, view.row_T)[1]
    return shared(trained_T, view.rollout_T)[0] / max(rows, 1)
