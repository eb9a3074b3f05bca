"""Weighted negative log-likelihood."""

import math

import pytest

from ledger.errors import MethodError
from tests.loss_batches import batch_of, gradient, outputs_of
from training.objectives import objectives


def loss(adv: list[float] | None, **params: object) -> tuple[list[float], dict[str, float], list[float]]:
    outputs = outputs_of([-1.0, -2.0, -3.0])
    loss_T, metrics = objectives.bind("weighted_supervised", **params).call(outputs, batch_of([True, True, False], adv=adv))
    return loss_T.tolist(), metrics, gradient(loss_T, outputs)


def test_by_hand_with_each_weight() -> None:
    adv = [0.5, -1.0, 9.0]
    assert loss(adv)[0] == [0.5, 0.0, 0.0]
    assert loss(adv, weight="signed")[0] == [0.5, -2.0, 0.0]
    assert loss(adv, weight="exponential", beta=0.5)[0] == pytest.approx([math.e, 2 * math.exp(-2), 0.0])
    assert loss(adv, weight="signed")[2] == [-0.5, 1.0, 0.0]


def test_weights_are_held_to_the_largest_and_counted() -> None:
    told, metrics, _ = loss([1e6, 0.0, 0.0], weight="exponential", max_weight=20.0)
    assert told == [20.0, 2.0, 0.0]
    assert metrics["capped_fraction"] == 0.5


def test_rewards_of_zero_and_one_are_rejection_sampling() -> None:
    outputs = outputs_of([-1.0, -2.0])
    kept, _ = objectives["supervised"](outputs, batch_of([True, False]))
    weighted, _ = objectives["weighted_supervised"](outputs, batch_of([True, True], adv=[1.0, 0.0], text_only=[True, True]))
    assert weighted.tolist() == kept.tolist()


def test_missing_advantages_and_wrong_parameters_are_refused() -> None:
    with pytest.raises(MethodError, match="advantages: none"):
        loss(None)
    with pytest.raises(MethodError, match="1 masked tokens have no finite advantage"):
        loss([float("nan"), 0.0, 0.0])
    with pytest.raises(MethodError, match="beta 0"):
        loss([1.0, 1.0, 1.0], beta=0.0)
