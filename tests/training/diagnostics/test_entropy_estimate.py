"""Entropy from the policy's own samples."""

import dataclasses

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, reward_of, view_of
from training.diagnostics import UpdateColumns, diagnostics
from training.view import RolloutView

ROLLED = (Rolled(1.0, (3,), context=0), Rolled(0.0, (1,), context=0))
VIEW = dataclasses.replace(view_of(*ROLLED), behaviour_logprob_T=np.array([-1.0, -2.0, -3.0, -6.0]))


def measure(view: RolloutView, tokens: int = 4) -> dict[str, tuple[float | None, int]]:
    told = diagnostics["entropy_estimate"](view, reward_of(*ROLLED), UpdateColumns(np.zeros(tokens), np.zeros(tokens)))
    return {name: (one.value, one.n) for name, one in told.items()}


def test_by_hand_over_tokens_and_over_rollouts() -> None:
    assert measure(VIEW) == {"entropy": (3.0, 4), "entropy_of_rollouts": (4.0, 2)}


def test_uniform_sampling_has_the_logarithm_of_the_number_of_choices() -> None:
    view = dataclasses.replace(VIEW, behaviour_logprob_T=np.full(4, -np.log(7)))
    assert measure(view)["entropy"][0] == pytest.approx(np.log(7))


def test_unknown_is_not_zero() -> None:
    view = dataclasses.replace(VIEW, behaviour_logprob_T=np.array([-1.0, np.nan, -3.0, np.nan]))
    assert measure(view) == {"entropy": (2.0, 2), "entropy_of_rollouts": (2.0, 1)}
    none = dataclasses.replace(VIEW, behaviour_logprob_T=np.full(4, np.nan))
    assert measure(none) == {"entropy": (None, 0), "entropy_of_rollouts": (None, 0)}


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(MethodError, match="shapes"):
        measure(VIEW, tokens=3)
