"""Every row weighs the same."""

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, view_of
from training.weightings import weightings

weigh = weightings["row_mean"]
ALL = np.array([True, True])


def test_by_hand_a_rollout_cut_in_two_weighs_twice() -> None:
    view = view_of(Rolled(1.0, (1, 2), cuts=(1,)), Rolled(0.0, (4,)))
    weight_T = weigh(view, ALL, view.mask_T)
    assert weight_T[view.mask_T] == pytest.approx([1 / 3, 1 / 6, 1 / 6] + [1 / 12] * 4)


def test_cutting_changes_it_which_is_declared() -> None:
    whole, cut = (view_of(Rolled(1.0, (1, 2), cuts=cuts), Rolled(0.0, (4,))) for cuts in ((), (1,)))
    shares = [weigh(view, ALL, view.mask_T)[view.rollout_T == 0].sum() for view in (whole, cut)]
    assert shares == pytest.approx([1 / 2, 2 / 3])
    assert weigh.slice_invariant is False


def test_rows_without_a_trained_token_do_not_count() -> None:
    view = view_of(Rolled(1.0, (1, 0), cuts=(1,)), Rolled(0.0, (1,)))
    assert weigh(view, ALL, view.mask_T).sum() == pytest.approx(1.0)
    assert weigh(view, ALL, view.mask_T)[view.mask_T] == pytest.approx([0.5, 0.5])


def test_shapes_that_differ_are_refused() -> None:
    view = view_of(Rolled())
    with pytest.raises(MethodError, match="allowed"):
        weigh(view, ALL, view.mask_T)
