"""Weightings: the explicit weight of each token in the loss of one update, fixed before micro-batching and sharding. One file a rule."""

from typing import Protocol

from ledger.methods import Family
from training.view import Bools, Floats, RolloutView


class Weighting(Protocol):
    """The signature of every weighting; its attribute `slice_invariant` says whether cutting a rollout into rows changes anything.

    Set it with `slice_invariant(True)` or `slice_invariant(False)` of `training.weightings._declared`.
    """

    def __call__(self, view: RolloutView, trains_R: Bools, mask_T: Bools) -> Floats:
        """Weight of each token, 0 where `mask_T` is False or its rollout does not train. The loss is the weighted sum over tokens."""
        ...


weightings: Family[Weighting] = Family("training.weightings")
