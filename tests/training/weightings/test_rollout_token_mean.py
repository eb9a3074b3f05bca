"""Every rollout weighs the same."""

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, view_of
from training.weightings import weightings

weigh = weightings["rollout_token_mean"]


def test_by_hand() -> None:
    view = view_of(Rolled(1.0, (1, 2), cuts=(1,)), Rolled(0.0, (4,)), Rolled(0.0, (3,)))
    weight_T = weigh(view, np.array([True, True, False]), view.mask_T)
    assert weight_T[view.mask_T] == pytest.approx([1 / 6] * 3 + [1 / 8] * 4 + [0.0] * 3)


def test_each_trained_rollout_has_the_same_sum_and_all_have_one() -> None:
    view = view_of(*(Rolled(1.0, (n, 2), cuts=(1,)) for n in (1, 5, 9)), Rolled(None, (0,)))
    weight_T = weigh(view, np.ones(4, dtype=np.bool_), view.mask_T)
    assert np.bincount(view.rollout_T, weights=weight_T, minlength=4) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert weigh.slice_invariant is True


def test_shapes_that_differ_are_refused() -> None:
    view = view_of(Rolled())
    with pytest.raises(MethodError, match="allowed"):
        weigh(view, np.ones(2, dtype=np.bool_), view.mask_T)
