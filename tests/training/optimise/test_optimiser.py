"""The optimiser: its schedule, its clipping, and a state that resumes bit for bit."""

import pytest
import torch
from safetensors.torch import load, save

from ledger.errors import UpdateRefused
from tests.training.optimise.small_batches import batch_of, policy, random_rollouts, term_of, view_of
from training.optimise.gradient import update_gradient
from training.optimise.optimiser import AdamW
from training.train_config import Optimiser


def one(model: torch.nn.Module, optimiser: AdamW, seed: int):
    view = view_of(random_rollouts(seed))
    update_gradient(model, batch_of(view, [term_of(view, "supervised")], [0.0] * 6), micro_tokens=200)
    return optimiser.step()


def test_warm_up_then_linear_decay_by_hand() -> None:
    config = Optimiser(learning_rate=1.0, warmup_steps=2, decay="linear")
    optimiser = AdamW(policy(), config, total_steps=6)
    assert [optimiser.learning_rate(k) for k in range(7)] == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    flat = AdamW(policy(), Optimiser(learning_rate=1.0, warmup_steps=2), total_steps=6)
    assert [flat.learning_rate(k) for k in range(4)] == [0.5, 1.0, 1.0, 1.0]
    late = AdamW(policy(), Optimiser(learning_rate=1.0, decay="linear", decay_start=0.5), total_steps=4)
    assert [late.learning_rate(k) for k in range(5)] == [1.0, 1.0, 1.0, 0.5, 0.0]


def test_gradients_are_scaled_down_to_the_norm_and_counted() -> None:
    model = policy()
    optimiser = AdamW(model, Optimiser(learning_rate=1e-3, max_grad_norm=0.01), total_steps=1)
    taken = one(model, optimiser, 1)
    assert taken.clipped and optimiser.clipped == 1 and taken.grad_norm > 0.01
    # The first moment after one step is (1 - beta1) of the gradient as it was taken.
    first = torch.cat([value.flatten() for name, value in optimiser.state().items() if name.startswith("exp_avg.")])
    assert float(first.norm()) == pytest.approx(0.01 * 0.1, rel=1e-6)
    loose = AdamW(policy(), Optimiser(learning_rate=1e-3, max_grad_norm=1e6), total_steps=1)
    assert not one(loose.model, loose, 1).clipped and loose.clipped == 0


def test_a_step_is_that_of_adamw() -> None:
    model, twin = policy(), policy()
    optimiser = AdamW(model, Optimiser(learning_rate=1e-2, max_grad_norm=1e6, weight_decay=0.1), total_steps=3)
    plain = torch.optim.AdamW(
        [{"params": [w for w in twin.parameters() if w.dim() > 1], "weight_decay": 0.1}, {"params": [w for w in twin.parameters() if w.dim() == 1], "weight_decay": 0.0}],
        lr=1e-2, betas=(0.9, 0.95), eps=1e-8,
    )  # fmt: skip
    for seed in range(3):
        one(model, optimiser, seed)
        view = view_of(random_rollouts(seed))
        update_gradient(twin, batch_of(view, [term_of(view, "supervised")], [0.0] * 6), micro_tokens=200)
        plain.step()
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-14)


def test_a_resumed_optimiser_goes_on_bit_for_bit() -> None:
    config = Optimiser(learning_rate=1e-2, warmup_steps=3, decay="linear", max_grad_norm=0.5)
    model = policy()
    optimiser = AdamW(model, config, total_steps=6)
    for seed in range(3):
        one(model, optimiser, seed)
    weights, state = {k: v.clone() for k, v in model.state_dict().items()}, load(save(optimiser.state()))
    straight = [one(model, optimiser, seed) for seed in (3, 4)]
    again = policy(5)
    again.load_state_dict(weights)
    resumed = AdamW(again, config, total_steps=6)
    resumed.load(state)
    assert [one(again, resumed, seed) for seed in (3, 4)] == straight
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(model.parameters(), again.parameters(), strict=True))
    assert all(torch.equal(value, resumed.state()[name]) for name, value in optimiser.state().items())


def test_a_state_stays_what_it_was_when_training_goes_on() -> None:
    model = policy()
    optimiser = AdamW(model, Optimiser(learning_rate=1e-2), total_steps=2)
    one(model, optimiser, 1)
    state = optimiser.state()
    kept = {name: value.clone() for name, value in state.items()}
    one(model, optimiser, 2)
    assert all(torch.equal(value, kept[name]) for name, value in state.items())


def test_a_state_of_another_model_is_refused() -> None:
    state = AdamW(torch.nn.Linear(2, 2), Optimiser(learning_rate=1.0), total_steps=1)
    state.weights["weight"].grad, state.weights["bias"].grad = torch.ones(2, 2), torch.ones(2)
    state.step()
    with pytest.raises(UpdateRefused, match=r"weight"):
        AdamW(policy(), Optimiser(learning_rate=1.0), total_steps=1).load(state.state())
    with pytest.raises(UpdateRefused, match="no steps"):
        AdamW(policy(), Optimiser(learning_rate=1.0), total_steps=1).load({})


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    model = policy()
    optimiser = AdamW(model, Optimiser(learning_rate=1.0), total_steps=1)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    model.lm_head.weight.grad = torch.full_like(model.lm_head.weight, float("nan"))
    with pytest.raises(UpdateRefused, match="norm is nan"):
        optimiser.step()
    assert optimiser.steps == 0 and all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    for weight in model.parameters():
        weight.requires_grad_(False)
    with pytest.raises(UpdateRefused, match="no trainable weight"):
        AdamW(model, Optimiser(learning_rate=1.0), total_steps=1)
