"""The clipped surrogate."""

import math

import pytest
import torch

from ledger.errors import MethodError
from tests.loss_batches import batch_of, gradient, outputs_of
from training.objectives import objectives

RATIOS = [0.5, 0.9, 1.1, 1.5, 5.0]
PROXIMAL = [-3.0] * 5


def loss(adv: float, **params: object) -> tuple[list[float], dict[str, float], list[float]]:
    outputs = outputs_of([-3.0 + math.log(ratio) for ratio in RATIOS])
    batch = batch_of([True] * 5, adv=[adv] * 5, proximal=PROXIMAL)
    loss_T, metrics = objectives.bind("ppo_clip", **params).call(outputs, batch)
    return loss_T.tolist(), metrics, gradient(loss_T, outputs)


def test_a_positive_advantage_is_clipped_above_alone() -> None:
    told, metrics, slope = loss(2.0)
    assert told == pytest.approx([-1.0, -1.8, -2.2, -2.56, -2.56])
    assert slope == pytest.approx([-1.0, -1.8, -2.2, 0.0, 0.0])
    assert metrics["clip_fraction"] == pytest.approx(2 / 5)
    assert (metrics["tokens"], metrics["ratio_mean"], metrics["ratio_max"]) == pytest.approx((5.0, 1.8, 5.0))


def test_a_negative_advantage_is_clipped_below_and_by_the_dual_clip() -> None:
    told, metrics, slope = loss(-1.0)
    assert told == pytest.approx([0.8, 0.9, 1.1, 1.5, 3.0])
    assert slope == pytest.approx([0.0, 0.9, 1.1, 1.5, 0.0])
    assert (metrics["clip_fraction"], metrics["dual_clip_fraction"]) == pytest.approx((1 / 5, 1 / 5))
    assert loss(-1.0, dual_clip=None)[0][-1] == pytest.approx(5.0)
    assert "dual_clip_fraction" not in loss(-1.0, dual_clip=None)[1]


def test_the_bounds_are_apart() -> None:
    assert loss(1.0, eps_low=0.0, eps_high=0.0)[0] == pytest.approx([-0.5, -0.9, -1.0, -1.0, -1.0])
    assert loss(-1.0, eps_low=0.05, eps_high=9.0, dual_clip=None)[0] == pytest.approx([0.95, 0.95, 1.1, 1.5, 5.0])


def test_at_the_start_of_the_update_the_gradient_is_the_policy_gradient() -> None:
    outputs = outputs_of([-1.0, -2.0])
    loss_T, metrics = objectives["ppo_clip"](outputs, batch_of([True, True], adv=[0.3, -0.7], proximal=[-1.0, -2.0]))
    assert gradient(loss_T, outputs) == pytest.approx([-0.3, 0.7])
    assert (metrics["approx_kl"], metrics["clip_fraction"]) == (0.0, 0.0)


def test_what_is_unknown_outside_the_mask_reaches_no_gradient() -> None:
    nan = float("nan")
    outputs = outputs_of([-1.0, -1.0])
    loss_T, metrics = objectives["ppo_clip"](outputs, batch_of([False, True], adv=[nan, 1.0], proximal=[nan, -1.0]))
    assert loss_T.tolist() == [0.0, -1.0]
    assert gradient(loss_T, outputs) == [0.0, -1.0]
    assert all(math.isfinite(value) for value in metrics.values())


def test_what_a_ratio_cannot_be_taken_of_is_refused() -> None:
    outputs = outputs_of([-1.0, -1.0])
    refused = {
        "no log-probabilities named 'proximal'; the batch has behaviour": batch_of([True, True], adv=[1, 1], behaviour=[-1, -1]),
        "1 masked tokens have no 'proximal'": batch_of([True, True], adv=[1, 1], proximal=[-1, float("nan")]),
        "2 masked tokens are of text-only rows": batch_of([True, True], adv=[1, 1], proximal=[-1, -1], text_only=[True, True]),
        "advantages: none": batch_of([True, True], proximal=[-1, -1]),
        "'proximal' has shape": batch_of([True, True], adv=[1, 1], proximal=[-1]),
    }
    for said, batch in refused.items():
        with pytest.raises(MethodError, match=said):
            objectives["ppo_clip"](outputs, batch)
    with pytest.raises(MethodError, match=r"dual_clip 1\.0"):
        loss(1.0, dual_clip=1.0)


def test_float32_stays_float32() -> None:
    batch = batch_of([True], adv=[1.0], proximal=[-1.0])
    loss_T, _ = objectives["ppo_clip"](type(outputs_of([0.0]))(torch.tensor([-1.0], requires_grad=True)), batch)
    assert loss_T.dtype == torch.float32
