"""What advantages look like."""

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, reward_of, view_of
from training.diagnostics import UpdateColumns, diagnostics

ROLLED = (Rolled(1.0, (2,), context=0), Rolled(0.0, (1,), context=0), Rolled(0.5, (1,), context=0))
VIEW = view_of(*ROLLED)


def measure(adv: list[float], weight: list[float]) -> dict[str, float | None]:
    update = UpdateColumns(np.array(adv), np.array(weight))
    return {name: told.value for name, told in diagnostics["advantage_summary"](VIEW, reward_of(*ROLLED), update).items()}


def test_by_hand() -> None:
    assert measure([1.0, 1.0, -2.0, 0.0], [1, 1, 1, 1]) == {
        "mean": 0.0, "std": pytest.approx(np.sqrt(1.5)), "min": -2.0, "max": 1.0, "positive_share": 0.5, "zero_share": 0.25,
        "zero_rollouts": pytest.approx(1 / 3),
    }  # fmt: skip


def test_tokens_without_a_weight_do_not_count() -> None:
    told = measure([1.0, 3.0, 99.0, 99.0], [1, 1, 0, 0])
    assert (told["mean"], told["max"], told["zero_rollouts"]) == (2.0, 3.0, 0.0)


def test_nothing_trained_is_no_number() -> None:
    assert set(measure([1.0] * 4, [0] * 4).values()) == {None}


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(MethodError, match=r"adv_T \(2,\)"):
        measure([1.0, 1.0], [1, 1, 1, 1])
