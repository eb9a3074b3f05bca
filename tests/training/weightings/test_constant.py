"""A fixed length instead of the lengths seen."""

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, view_of
from training.weightings import weightings

VIEW = view_of(Rolled(1.0, (1, 2), cuts=(1,)), Rolled(0.0, (4,)))
ALL = np.array([True, True])


def test_by_hand() -> None:
    weight_T = weightings.bind("constant", length=10.0).call(VIEW, ALL, VIEW.mask_T)
    assert weight_T[VIEW.mask_T] == pytest.approx([1 / 20] * 7)
    assert weight_T.sum() == pytest.approx(3.5 / 10)
    alone = weightings.bind("constant", length=10.0, mean_over="nothing").call(VIEW, ALL, VIEW.mask_T)
    assert alone[VIEW.mask_T] == pytest.approx([1 / 10] * 7)


def test_a_tokens_weight_does_not_depend_on_its_rollouts_length() -> None:
    longer = view_of(Rolled(1.0, (1, 2)), Rolled(0.0, (40,)))
    first, second = (weightings["constant"](view, ALL, view.mask_T)[view.mask_T][0] for view in (VIEW, longer))
    assert first == second == 1 / 2048


def test_wrong_parameters_and_shapes_are_refused() -> None:
    for params in ({"length": 0.0}, {"mean_over": "rows"}):
        with pytest.raises(MethodError, match="allowed: above 0, and 'rollouts' or 'nothing'"):
            weightings.bind("constant", **params).call(VIEW, ALL, VIEW.mask_T)
    with pytest.raises(MethodError, match="shapes"):
        weightings["constant"](VIEW, ALL[:1], VIEW.mask_T)
