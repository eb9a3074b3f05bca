"""The mass that truncated sampling kept."""

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, reward_of, view_of
from training.diagnostics import Measured, UpdateColumns, diagnostics

ONE = Rolled(1.0, (4,), context=0)
VIEW = view_of(ONE)
PROBABILITY = np.array([0.5, 0.3, 0.15, 0.05])


def measure(proximal: np.ndarray, behaviour: np.ndarray) -> dict[str, Measured]:
    update = UpdateColumns(np.zeros(4), np.zeros(4), {"proximal": proximal, "behaviour": behaviour})
    return dict(diagnostics["kept_mass_ratio"](VIEW, reward_of(ONE), update))


def test_every_token_shows_the_kept_mass_by_hand() -> None:
    kept = 0.95
    told = measure(np.log(PROBABILITY[[0, 1, 2, 0]]), np.log(PROBABILITY[[0, 1, 2, 0]] / kept))
    assert [told[name].value for name in ("mean", "min", "max", "below_one")] == pytest.approx([kept, kept, kept, 1.0])


def test_the_plain_distribution_keeps_all() -> None:
    told = measure(np.log(PROBABILITY), np.log(PROBABILITY))
    assert [told[name].value for name in ("mean", "min", "max", "below_one")] == [1.0, 1.0, 1.0, 0.0]
    assert "same weights" in told["mean"].caveats[-1]


def test_unknown_log_probabilities_are_left_out() -> None:
    behaviour = np.array([np.nan, -1.0, -1.0, -1.0])
    assert (measure(np.full(4, -1.0), behaviour)["mean"].value, measure(np.full(4, -1.0), behaviour)["mean"].n) == (1.0, 3)


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(MethodError, match="shapes"):
        measure(np.zeros(2), np.zeros(4))
