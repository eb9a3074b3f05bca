"""Agent Lightning's released divisor."""

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, view_of
from training.view import RolloutView
from training.weightings import weightings

weigh = weightings["agent_lightning_rows"]
ALL = np.array([True, True])


def mass(view: RolloutView) -> list[float]:
    return np.bincount(view.rollout_T, weights=weigh(view, ALL, view.mask_T)).tolist()


def test_three_rows_of_two_rollouts_weigh_a_third_each_as_in_its_own_test() -> None:
    view = view_of(Rolled(1.0, (2, 1), cuts=(1,)), Rolled(0.0, (5,)))
    assert mass(view) == pytest.approx([1 / 3, 1 / 3])


def test_slicing_one_rollout_shrinks_the_weight_of_all() -> None:
    whole = view_of(Rolled(1.0, (1, 1, 1)), Rolled(0.0, (5,)))
    cut = view_of(Rolled(1.0, (1, 1, 1), cuts=(1, 2)), Rolled(0.0, (5,)))
    assert mass(whole) == pytest.approx([0.5, 0.5])
    assert mass(cut) == pytest.approx([0.25, 0.25])
    assert weigh.slice_invariant is False


def test_shapes_that_differ_are_refused() -> None:
    view = view_of(Rolled())
    with pytest.raises(MethodError, match="allowed"):
        weigh(view, ALL, view.mask_T)
