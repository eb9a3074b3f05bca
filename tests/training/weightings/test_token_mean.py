"""Every trained token weighs the same."""

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, view_of
from training.weightings import weightings

ROLLED = (Rolled(1.0, (1, 1), cuts=(1,)), Rolled(0.0, (2,)), Rolled(0.0, (5,)))
TRAINS = np.array([True, True, False])
weigh = weightings["token_mean"]


def test_by_hand_and_zero_where_nothing_is_trained() -> None:
    view = view_of(*ROLLED)
    weight_T = weigh(view, TRAINS, view.mask_T)
    assert weight_T[view.mask_T].tolist() == [0.25] * 4 + [0.0] * 5
    assert weight_T[~view.mask_T].sum() == 0.0


def test_the_sum_is_one_over_exactly_the_final_mask() -> None:
    view = view_of(*ROLLED)
    mask_T = view.mask_T & (np.arange(len(view.mask_T)) % 2 == 1)
    assert weigh(view, TRAINS, mask_T).sum() == pytest.approx(1.0)
    assert np.count_nonzero(weigh(view, TRAINS, mask_T)) == int((mask_T & TRAINS[view.rollout_T]).sum())


def test_nothing_trained_weighs_nothing() -> None:
    view = view_of(*ROLLED)
    assert weigh(view, np.zeros(3, dtype=np.bool_), view.mask_T).sum() == 0.0


def test_shapes_that_differ_are_refused() -> None:
    view = view_of(*ROLLED)
    with pytest.raises(MethodError, match=r"shapes \(2,\)"):
        weigh(view, TRAINS[:2], view.mask_T)
    with pytest.raises(MethodError, match="allowed"):
        weigh(view, TRAINS, view.mask_T[:-1])
