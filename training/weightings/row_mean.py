"""Every training row weighs the same, however its rollout was cut."""

from training.view import Bools, Floats, RolloutView
from training.weightings._counts import shared, trained
from training.weightings._declared import slice_invariant


@slice_invariant(False)
def row_mean(view: RolloutView, trains_R: Bools, mask_T: Bools) -> Floats:
    """1 / (rows x trained tokens of the row), 0 where not trained, shape (T,); the sum is 1, or 0 when nothing is trained.

    Only rows with a trained token count. A rollout cut into three rows weighs three times, so this is not slice-invariant.

    Args:
        view: columns along R, Q and T.
        trains_R: rollouts in the loss, shape (R,).
        mask_T: tokens that the term covers, shape (T,).
    Raises:
        MethodError: shapes differ.

    Source: GRPO, arXiv 2402.03300, equation 3, with a row in the place of an output, as verl's seq-mean-token-mean and TRL take it.
    """
    share_T, rows = shared(trained(view, trains_R, mask_T), view.row_T)
    return share_T / max(rows, 1)
