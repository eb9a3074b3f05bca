"""Estimates of a divergence and their gradients."""

import math

import pytest
import torch

from ledger.errors import MethodError
from tests.loss_batches import batch_of, gradient, outputs_of
from training.objectives import LossBatch, Outputs, objectives

D = 0.5


def loss(form: str, **params: object) -> tuple[list[float], list[float]]:
    outputs = outputs_of([-1.0, -1.0])
    loss_T, _ = objectives.bind("kl_penalty", form=form, **params).call(outputs, batch_of([True, False], ref=[-1.0 + D, -9.0]))
    return loss_T.tolist(), gradient(loss_T, outputs)


def test_each_form_and_its_gradient_by_hand() -> None:
    assert loss("k1") == (pytest.approx([-D, 0.0]), pytest.approx([1.0, 0.0]))
    assert loss("k2") == (pytest.approx([D**2 / 2, 0.0]), pytest.approx([-D, 0.0]))
    assert loss("k3") == (pytest.approx([math.exp(D) - 1 - D, 0.0]), pytest.approx([1 - math.exp(D), 0.0]))
    assert loss("k3", gradient="k2") == (pytest.approx([math.exp(D) - 1 - D, 0.0]), pytest.approx([-D, 0.0]))


def exact(form: str, gradient_of: str = "form") -> tuple[float, torch.Tensor]:
    """Expectation over all three tokens of a small policy: of the estimate, and of its gradient by the logits."""
    logits = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64, requires_grad=True)
    new_V, ref_V = torch.log_softmax(logits, 0), torch.log_softmax(torch.tensor([-0.4, 0.6, 0.1], dtype=torch.float64), 0)
    batch = LossBatch(torch.ones(3, dtype=torch.bool), logprobs={"ref": ref_V})
    value_V, _ = objectives.bind("kl_penalty", form=form, gradient=gradient_of).call(Outputs(new_V), batch)
    expected = (new_V.detach().exp() * value_V).sum()
    (slope,) = torch.autograd.grad(expected, logits)
    return float(expected.detach()), slope


def divergence_gradient(*, reverse: bool) -> torch.Tensor:
    logits = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64, requires_grad=True)
    new_V, ref_V = torch.log_softmax(logits, 0), torch.log_softmax(torch.tensor([-0.4, 0.6, 0.1], dtype=torch.float64), 0)
    total = (new_V.exp() * (new_V - ref_V)).sum() if reverse else (ref_V.exp() * (ref_V - new_V)).sum()
    return torch.autograd.grad(total, logits)[0]


def test_k1_and_k3_have_the_divergence_as_their_mean() -> None:
    logits, ref = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64), torch.tensor([-0.4, 0.6, 0.1], dtype=torch.float64)
    new_V, ref_V = torch.log_softmax(logits, 0), torch.log_softmax(ref, 0)
    divergence = float((new_V.exp() * (new_V - ref_V)).sum())
    assert exact("k1")[0] == pytest.approx(divergence)
    assert exact("k3")[0] == pytest.approx(divergence)


def test_as_losses_the_forms_have_other_gradients() -> None:
    assert exact("k1")[1] == pytest.approx(torch.zeros(3, dtype=torch.float64), abs=1e-12)
    assert exact("k2")[1] == pytest.approx(divergence_gradient(reverse=True))
    assert exact("k3")[1] == pytest.approx(divergence_gradient(reverse=False))
    assert exact("k3", "k2")[1] == pytest.approx(divergence_gradient(reverse=True))


def test_it_is_zero_for_the_same_policy_whatever_the_form() -> None:
    for form in ("k1", "k2", "k3"):
        loss_T, metrics = objectives.bind("kl_penalty", form=form, against="proximal").call(
            outputs_of([-1.0]), batch_of([True], proximal=[-1.0])
        )
        assert loss_T.tolist() == [0.0]
        assert metrics["gap_max"] == 0.0


def test_unknown_reference_and_parameters_are_refused() -> None:
    with pytest.raises(MethodError, match="no log-probabilities named 'ref'"):
        objectives["kl_penalty"](outputs_of([-1.0]), batch_of([True]))
    with pytest.raises(MethodError, match="1 masked tokens have no 'ref'"):
        objectives["kl_penalty"](outputs_of([-1.0]), batch_of([True], ref=[float("nan")]))
    with pytest.raises(MethodError, match="text-only"):
        objectives["kl_penalty"](outputs_of([-1.0]), batch_of([True], ref=[-1.0], text_only=[True]))
    with pytest.raises(MethodError, match="form 'k4'"):
        loss("k4")
