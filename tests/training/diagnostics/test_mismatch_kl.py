"""The gap between engine and trainer."""

import math

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, reward_of, view_of
from training.diagnostics import Measured, UpdateColumns, diagnostics

ONE = Rolled(1.0, (3,))
VIEW = view_of(ONE)


def measure(**logprobs: list[float]) -> dict[str, Measured]:
    update = UpdateColumns(np.zeros(4), np.ones(4), {name: np.array(values) for name, values in logprobs.items()})
    return dict(diagnostics["mismatch_kl"](VIEW, reward_of(ONE), update))


def test_by_hand_over_the_masked_tokens() -> None:
    told = measure(behaviour=[9.0, -1.0, -1.0, -2.0], proximal=[0.0, -1.0, -1.5, -1.0])
    assert told["k1"].value == pytest.approx((0.5 - 1.0) / 3)
    assert told["k3"].value == pytest.approx(((math.exp(-0.5) + 0.5 - 1) + (math.exp(1) - 2)) / 3)
    assert (told["gap_mean"].value, told["gap_max"].value, told["gap_max"].n) == (pytest.approx(0.5), 1.0, 3)


def test_one_policy_with_one_numerics_has_no_gap() -> None:
    told = measure(behaviour=[0.0, -1.0, -2.0, -3.0], proximal=[0.0, -1.0, -2.0, -3.0])
    assert {name: one.value for name, one in told.items()} == {"k1": 0.0, "k3": 0.0, "gap_mean": 0.0, "gap_max": 0.0}


def test_unknown_log_probabilities_are_left_out_and_told() -> None:
    nan = float("nan")
    told = measure(behaviour=[nan, -1.0, nan, -2.0], proximal=[nan, -1.0, -1.0, -2.5])["gap_max"]
    assert (told.value, told.n, told.caveats) == (0.5, 2, ("1 masked tokens left out: behaviour or proximal unknown",))
    none = measure(behaviour=[nan] * 4, proximal=[-1.0] * 4)["k3"]
    assert (none.value, none.n) == (None, 0)
    assert measure(behaviour=[-1.0] * 4)["k1"].caveats == ("no column proximal",)


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(MethodError, match=r"proximal \(1,\)"):
        measure(behaviour=[-1.0] * 4, proximal=[-1.0])
