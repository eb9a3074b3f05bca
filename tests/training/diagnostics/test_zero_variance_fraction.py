"""Populations that say nothing."""

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, reward_of, rewarded, view_of
from training.diagnostics import Measured, UpdateColumns, diagnostics


def measure(*rolled: Rolled, weight: float = 1.0) -> dict[str, Measured]:
    view = view_of(*rolled)
    update = UpdateColumns(np.zeros(len(view.mask_T)), np.where(view.mask_T, weight, 0.0))
    return dict(diagnostics["zero_variance_fraction"](view, reward_of(*rolled), update))


def test_by_hand() -> None:
    told = measure(*rewarded(1, 1, group="a"), *rewarded(1, 0, 0, group="b", tokens=2), *rewarded(1, group="alone"))
    assert {name: (one.value, one.n) for name, one in told.items()} == {"populations": (0.5, 2), "rollouts": (0.4, 5), "weight": (2 / 9, 9)}


def test_equal_groups_still_hold_weight_which_a_penalty_would_use() -> None:
    told = measure(*rewarded(0, 0))
    assert [told[name].value for name in ("populations", "rollouts", "weight")] == [1.0, 1.0, 1.0]


def test_a_missing_reward_is_no_equal_reward() -> None:
    assert measure(*rewarded(0, None))["populations"].value is None
    assert measure(*rewarded(0, 1, None))["populations"].value == 0.0
    assert measure(*rewarded(0, 1), weight=0.0)["weight"].value is None


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(MethodError, match="shapes"):
        diagnostics["zero_variance_fraction"](view_of(Rolled()), reward_of(Rolled()), UpdateColumns(np.zeros(1), np.zeros(2)))
