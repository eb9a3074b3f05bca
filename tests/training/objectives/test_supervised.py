"""Negative log-likelihood."""

import pytest

from ledger.errors import MethodError
from tests.loss_batches import batch_of, gradient, outputs_of
from training.objectives import objectives

loss_of = objectives["supervised"]


def test_by_hand() -> None:
    outputs = outputs_of([-0.5, -2.0, -1.0])
    loss_T, metrics = loss_of(outputs, batch_of([False, True, True]))
    assert loss_T.tolist() == [0.0, 2.0, 1.0]
    assert metrics == {"nll": 1.5, "tokens": 2.0}
    assert gradient(loss_T, outputs) == [0.0, -1.0, -1.0]


def test_text_only_rows_are_allowed_and_no_mask_is_no_loss() -> None:
    loss_T, metrics = loss_of(outputs_of([-1.0, -1.0]), batch_of([False, True], text_only=[True, True]))
    assert loss_T.tolist() == [0.0, 1.0]
    assert loss_of(outputs_of([-1.0]), batch_of([False]))[1] == {"nll": 0.0, "tokens": 0.0}
    assert metrics["tokens"] == 1.0


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(MethodError, match=r"shape \(2,\); allowed: the mask's \(1,\)"):
        loss_of(outputs_of([-1.0, -1.0]), batch_of([True]))
