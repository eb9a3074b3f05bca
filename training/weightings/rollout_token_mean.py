"""Every rollout weighs the same, and within it every trained token."""

from training.view import Bools, Floats, RolloutView
from training.weightings._counts import shared, trained
from training.weightings._declared import slice_invariant


@slice_invariant(True)
def rollout_token_mean(view: RolloutView, trains_R: Bools, mask_T: Bools) -> Floats:
    """1 / (rollouts x trained tokens of the rollout), 0 where not trained, shape (T,); the sum is 1, or 0 when nothing is trained.

    Only rollouts with a trained token count; a rollout's tokens count together, whatever rows they stand in.

    Args:
        view: columns along R, Q and T.
        trains_R: rollouts in the loss, shape (R,).
        mask_T: tokens that the term covers, shape (T,).
    Raises:
        MethodError: shapes differ.

    Source: GRPO, arXiv 2402.03300, equation 3, with the whole rollout as the output; survey section S05, mean over rollouts.
    """
    share_T, rollouts = shared(trained(view, trains_R, mask_T), view.rollout_T)
    return share_T / max(rollouts, 1)
