"""Truncated importance weights on the policy gradient."""

import math

import pytest

from ledger.errors import MethodError
from tests.loss_batches import batch_of, gradient, outputs_of
from training.objectives import objectives

NEW = [-1.0, -2.0, -1.5, -1.0]
GAPS = [math.log(0.5), math.log(3.0), math.log(4.0), 0.0]
BEHAVIOUR = [new - gap for new, gap in zip(NEW, GAPS, strict=True)]


def loss(mask: list[bool] | None = None, **params: object) -> tuple[list[float], dict[str, float], list[float]]:
    outputs = outputs_of(NEW)
    batch = batch_of(mask or [True] * 4, adv=[1.0, 1.0, -2.0, 1.0], rows=[0, 0, 1, 1], proximal=NEW, behaviour=BEHAVIOUR)
    loss_T, metrics = objectives.bind("truncated_importance", **params).call(outputs, batch)
    return loss_T.tolist(), metrics, gradient(loss_T, outputs)


def test_a_weight_a_token_by_hand() -> None:
    told, metrics, slope = loss(cap=2.0)
    assert told == pytest.approx([-0.5, -2.0, 4.0, -1.0])
    assert slope == pytest.approx([-0.5, -2.0, 4.0, -1.0])
    assert (metrics["capped_fraction"], metrics["importance_max"]) == pytest.approx((0.5, 4.0))
    assert metrics["importance_mean"] == pytest.approx((0.5 + 2 + 2 + 1) / 4)


def test_a_weight_a_row_is_the_product_over_its_masked_tokens() -> None:
    assert loss(level="sequence", cap=10.0)[0] == pytest.approx([-1.5, -1.5, 8.0, -4.0])
    assert loss([True, False, True, True], level="sequence", cap=10.0)[0] == pytest.approx([-0.5, 0.0, 8.0, -4.0])


def test_without_a_gap_it_is_ppo() -> None:
    outputs = outputs_of([-0.9, -2.2])
    batch = batch_of([True, True], adv=[1.0, -1.0], proximal=[-1.0, -2.0], behaviour=[-1.0, -2.0])
    told, _ = objectives["truncated_importance"](outputs, batch)
    assert told.tolist() == pytest.approx(objectives["ppo_clip"](outputs, batch)[0].tolist())


def test_what_it_cannot_be_taken_of_is_refused() -> None:
    outputs = outputs_of([-1.0])
    with pytest.raises(MethodError, match="no log-probabilities named 'behaviour'"):
        objectives["truncated_importance"](outputs, batch_of([True], adv=[1], proximal=[-1]))
    with pytest.raises(
        MethodError, match="1 masked tokens have no 'behaviour' log-probability; allowed: finite nats on every masked token, never 0"
    ):
        objectives["truncated_importance"](outputs, batch_of([True], adv=[1], proximal=[-1], behaviour=[float("nan")]))
    with pytest.raises(MethodError, match="text-only"):
        objectives["truncated_importance"](outputs, batch_of([True], adv=[1], proximal=[-1], behaviour=[-1], text_only=[True]))
    with pytest.raises(MethodError, match="no row_T"):
        objectives.bind("truncated_importance", level="sequence").call(outputs, batch_of([True], adv=[1], proximal=[-1], behaviour=[-1]))
    with pytest.raises(MethodError, match="cap 0"):
        loss(cap=0.0)
