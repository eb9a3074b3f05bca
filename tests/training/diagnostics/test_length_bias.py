"""Trained against dispatched lengths."""

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, reward_of, view_of
from training.diagnostics import Measured, UpdateColumns, diagnostics

ROLLED = tuple(Rolled(1.0, (length,), context=0) for length in (2, 2, 4, 8))
VIEW = view_of(*ROLLED)


def measure(trains: list[bool]) -> dict[str, Measured]:
    weight_T = np.where(np.array(trains)[VIEW.rollout_T], 0.1, 0.0)
    return dict(diagnostics["length_bias"](VIEW, reward_of(*ROLLED), UpdateColumns(np.zeros(16), weight_T)))


def test_by_hand_where_the_long_ones_were_dropped() -> None:
    told = measure([True, True, False, False])
    assert (told["trained_mean"].value, told["dispatched_mean"].value, told["ratio"].value) == (2.0, 4.0, 0.5)
    assert told["distance"].value == pytest.approx(0.5)


def test_training_on_everything_has_no_bias() -> None:
    told = measure([True] * 4)
    assert (told["ratio"].value, told["distance"].value, told["ratio"].n) == (1.0, 0.0, 4)


def test_nothing_trained_is_no_number() -> None:
    assert {one.value for one in measure([False] * 4).values()} == {None}


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(MethodError, match="shapes"):
        diagnostics["length_bias"](VIEW, reward_of(*ROLLED), UpdateColumns(np.zeros(16), np.zeros(3)))
