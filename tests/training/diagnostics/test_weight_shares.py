"""Who got how much gradient."""

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, reward_of, view_of
from training.diagnostics import Measured, UpdateColumns, diagnostics

ROLLED = (Rolled(1.0, (1, 2), cuts=(1,), context=0), Rolled(0.0, (1,), context=0), Rolled(0.0, (1,), context=0))
VIEW = view_of(*ROLLED)


def measure(adv: list[float], weight: list[float]) -> dict[str, Measured]:
    return dict(diagnostics["weight_shares"](VIEW, reward_of(*ROLLED), UpdateColumns(np.array(adv), np.array(weight))))


def test_by_hand_over_all_rows_of_a_rollout() -> None:
    told = measure([1.0, 1.0, 1.0, -2.0, 5.0], [0.2, 0.1, 0.1, 0.3, 0.0])
    assert {name: one.value for name, one in told.items()} == {
        "rollout:r0": pytest.approx(0.4), "rollout:r1": pytest.approx(0.6), "largest": pytest.approx(0.6),
        "effective_rollouts": pytest.approx(1 / (0.16 + 0.36)),
    }  # fmt: skip
    assert told["rollout:r0"].n == 3


def test_shares_sum_to_one_and_equal_ones_count_themselves() -> None:
    told = measure([1.0, 1.0, 1.0, 3.0, -3.0], [1.0] * 5)
    assert sum(one.value or 0 for name, one in told.items() if name.startswith("rollout:")) == pytest.approx(1.0)
    assert told["effective_rollouts"].value == pytest.approx(3.0)


def test_without_any_credit_there_are_no_shares() -> None:
    assert {one.value for one in measure([0.0] * 5, [1.0] * 5).values()} == {None}


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(MethodError, match=r"weight_T \(1,\)"):
        measure([0.0] * 5, [1.0])
