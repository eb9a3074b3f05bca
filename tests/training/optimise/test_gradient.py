"""The gradient of an update: what it must not depend on, and what it must refuse."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ledger.errors import MethodError, UpdateRefused
from tests.training.optimise.small_batches import (
    apart,
    batch_of,
    cut,
    flat,
    gradient,
    policy,
    random_rollouts,
    term_of,
    view_of,
)
from training.advantages import advantages
from training.optimise.gradient import planned, update_gradient, with_column
from training.rewards import Scored
from training.update_batch import UpdateBatch
from training.weightings import weightings

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
ADVANTAGE = [1.0, -0.5, 0.3, -1.2, 0.7, -0.1]


def many_terms(dtype: torch.dtype) -> UpdateBatch:
    view = view_of(random_rollouts(1))
    terms = [
        term_of(view, "ppo_clip"),
        term_of(view, "kl_penalty", coefficient=0.1),
        term_of(view, "supervised", "token_mean", coefficient=0.3),
    ]
    batch = batch_of(view, terms, ADVANTAGE)
    for name, seed in (("ref", 7), ("proximal", 8)):
        batch = with_column(batch, name, policy(seed, dtype), micro_tokens=10**6)
    return batch


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_micro_batches_do_not_change_the_gradient(dtype: torch.dtype) -> None:
    batch, model = many_terms(dtype), policy(0, dtype)
    whole = update_gradient(model, batch, micro_tokens=10**6, entropy=True)
    expected = flat(model)
    for micro_tokens in (1, 100):
        parts = update_gradient(model, batch, micro_tokens=micro_tokens, entropy=True)
        assert parts.micro_batches > whole.micro_batches == 1
        assert apart(flat(model), expected) <= TOLERANCE[dtype]
        for name, value in whole.as_counters().items():
            if name not in ("micro_batches", "padding"):
                assert parts.as_counters()[name] == pytest.approx(value, rel=TOLERANCE[dtype], abs=1e-9), name
    assert parts.counters == {} or set(parts.counters) == {"micro_batches_over_budget"}


def test_the_gradient_is_that_of_the_plain_sum() -> None:
    view = view_of(random_rollouts(2))
    batch = batch_of(view, [term_of(view, "supervised", "rollout_token_mean")], [0.0] * 6)
    model, by_hand = policy(), policy()
    total = torch.zeros((), dtype=torch.float64)
    for row in range(6):
        ids = torch.from_numpy(view.id_T[view.row_T == row].astype(np.int64))
        logprob = by_hand(ids, torch.zeros_like(ids)).log_softmax(-1)[:-1].gather(-1, ids[1:, None])[:, 0]
        mask = torch.from_numpy(view.mask_T[view.row_T == row][1:])
        total = total - logprob[mask].mean() / 6
    total.backward()
    measured = update_gradient(model, batch, micro_tokens=10**6)
    assert measured.loss == pytest.approx(float(total.detach()), rel=1e-12)
    assert apart(flat(model), flat(by_hand)) < 1e-12
    assert measured.grad_norm == pytest.approx(float(flat(by_hand).norm()), rel=1e-12)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("weighting", sorted(weightings.names()))
def test_cutting_a_rollout_into_rows_leaves_a_slice_invariant_gradient_alone(weighting: str, dtype: torch.dtype) -> None:
    rollouts = random_rollouts(3)
    found = []
    for shape in (rollouts, [cut(rollout) for rollout in rollouts], [cut(rollouts[0]), *rollouts[1:]]):
        view = view_of(shape)
        adv = advantages["group_normalised"](view, Scored((1.0, 0.0, 1.0, 0.0, 0.0, 0.25), ("",) * 6), np.ones(6, dtype=np.bool_), {})
        batch = replace(batch_of(view, [term_of(view, "ppo_clip", weighting)], ADVANTAGE), adv_T=adv.adv_T)
        found.append(gradient(policy(0, dtype), batch))
    distances = [apart(sliced, found[0]) for sliced in found[1:]]
    if weightings[weighting].slice_invariant:  # type: ignore[attr-defined]
        assert max(distances) <= TOLERANCE[dtype]
    else:
        assert min(distances) > 1e-2


def test_weightings_by_their_golden_numbers() -> None:
    """Rollout A, advantage +.5, in three rows of ten tokens; B, -.5, in one of ninety."""
    ten, ninety = [(list(range(1, 12)), [-1] + [step] * 10) for step in range(3)], [([1] * 91, [-1] + [0] * 90)]
    view = view_of([ten, ninety])
    losses = {}
    for weighting in ("token_mean", "row_mean", "rollout_token_mean", "agent_lightning_rows"):
        batch = batch_of(view, [term_of(view, "ppo_clip", weighting)], [0.5, -0.5])
        losses[weighting] = update_gradient(policy(), batch, micro_tokens=10**6).loss
        assert batch.terms[0].weight_T.sum() == pytest.approx(0.5 if weighting == "agent_lightning_rows" else 1.0)
    assert losses == pytest.approx(
        {"token_mean": 0.25, "row_mean": -0.25, "rollout_token_mean": 0.0, "agent_lightning_rows": 0.0}, abs=1e-12
    )


def test_agent_lightnings_divisor_halves_the_gradient_of_a_rollout_cut_in_three() -> None:
    ten, ninety = [(list(range(1, 12)), [-1] + [step] * 10) for step in range(3)], [([1] * 91, [-1] + [0] * 90)]
    view = view_of([ten, ninety])
    grads = {
        name: gradient(policy(), batch_of(view, [term_of(view, "ppo_clip", name)], [0.5, -0.5]))
        for name in ("rollout_token_mean", "agent_lightning_rows")
    }
    assert apart(grads["agent_lightning_rows"] * 2, grads["rollout_token_mean"]) < 1e-12


def test_a_batch_with_failed_environments_has_the_gradient_of_the_batch_without_them() -> None:
    rollouts, failed = random_rollouts(4, 8), [1, 4, 6]
    grads, counters = [], []
    for kept in (list(range(8)), [r for r in range(8) if r not in failed]):
        view = view_of([rollouts[r] for r in kept], outcomes=["env_failed" if r in failed else "task_failed" for r in kept])
        valid = np.array([outcome != "env_failed" for outcome in view.outcome_R])
        reward = Scored(tuple(float(r % 3) if ok else None for r, ok in zip(kept, valid, strict=True)), ("",) * len(kept))
        adv = advantages["group_normalised"](view, reward, valid, {})
        terms = [term_of(view, "ppo_clip", trains=valid), term_of(view, "supervised", "token_mean", trains=valid, coefficient=0.1)]
        batch = replace(batch_of(view, terms, [0.0] * len(kept)), adv_T=adv.adv_T)
        model = policy()
        counters.append(update_gradient(model, batch, micro_tokens=200).counters)
        grads.append(flat(model))
    assert apart(grads[0], grads[1]) < 1e-12
    assert counters[0]["rows_without_weight"] == 3 and "rows_without_weight" not in counters[1]


def pairs_batch() -> UpdateBatch:
    view = view_of(random_rollouts(5, 8))
    batch = batch_of(view, [term_of(view, "dpo", beta=0.5)], [0.0] * 8)
    batch = replace(batch, pairs_P2=np.array([[5, 0], [1, 2], [3, 6], [3, 4]]))
    mask = batch.terms[0].mask_T & (batch.row_T != 7)
    term = replace(batch.terms[0], mask_T=mask, weight_T=np.where(mask, batch.terms[0].weight_T, 0.0))
    return with_column(replace(batch, terms=(term,)), "ref", policy(9), micro_tokens=10**6)


def test_both_rows_of_a_pair_go_through_together_and_micro_batches_do_not_matter() -> None:
    batch = pairs_batch()
    plan = [set(rows.tolist()) for rows in planned(batch, micro_tokens=1)]
    assert sorted(map(sorted, plan)) == [[0, 5], [1, 2], [3, 4, 6]]
    assert apart(gradient(policy(), batch, micro_tokens=1), gradient(policy(), batch)) < 1e-9


def test_the_weight_of_a_pair_is_its_rows_and_rows_in_two_pairs_share_theirs() -> None:
    batch, model = pairs_batch(), policy()
    measured = update_gradient(model, batch, micro_tokens=10**6)
    new = with_column(batch, "new", model, micro_tokens=10**6).logprobs["new"]
    margin = np.array([np.nansum((new - batch.logprobs["ref"])[(batch.row_T == q) & batch.terms[0].mask_T]) for q in range(8)])
    gap = np.array([margin[left] - margin[right] for left, right in batch.pairs_P2])
    weight = np.array([2, 2, 1.5, 1.5]) / 8
    assert measured.loss == pytest.approx(float((weight * np.log1p(np.exp(-0.5 * gap))).sum()), rel=1e-9)
    assert measured.metrics["dpo:pairs"] == 4


def test_without_a_proximal_column_it_is_the_model_itself_and_counted() -> None:
    view = view_of(random_rollouts(6))
    batch, model = batch_of(view, [term_of(view, "ppo_clip")], ADVANTAGE), policy()
    measured = update_gradient(model, batch, micro_tokens=10**6)
    implied = flat(model)
    assert measured.counters == {"tokens_proximal_is_new": int(view.mask_T.sum())}
    assert measured.metrics["ppo_clip:ratio_mean"] == pytest.approx(1.0, abs=1e-12)
    told = with_column(batch, "proximal", model, micro_tokens=100)
    assert update_gradient(model, told, micro_tokens=10**6).counters == {}
    assert apart(flat(model), implied) < 1e-9
    moved = update_gradient(policy(1), told, micro_tokens=10**6)
    assert moved.metrics["ppo_clip:ratio_max"] > 1.5


def test_the_reference_is_asked_only_where_the_batch_does_not_have_it() -> None:
    view = view_of(random_rollouts(6))
    batch = batch_of(view, [term_of(view, "kl_penalty")], ADVANTAGE)
    with pytest.raises(MethodError, match="'ref'"):
        update_gradient(policy(), batch, micro_tokens=10**6)
    asked = update_gradient(policy(), batch, micro_tokens=10**6, ref=policy(3))
    held = update_gradient(policy(), with_column(batch, "ref", policy(3), micro_tokens=100), micro_tokens=10**6, ref=policy(4))
    assert asked.loss == pytest.approx(held.loss, rel=1e-12) and asked.loss > 0


def test_the_gap_to_the_behaviour_policy_is_measured_and_what_is_missing_is_counted() -> None:
    view = view_of(random_rollouts(6))
    behaviour = with_column(batch_of(view, [term_of(view, "supervised")], ADVANTAGE), "x", policy(), micro_tokens=10**6).logprobs["x"]
    sampled = np.flatnonzero(view.mask_T)
    behaviour[sampled] += 0.25
    behaviour[sampled[0]] += 0.5
    behaviour[sampled[-3:]] = np.nan
    batch = replace(batch_of(view, [term_of(view, "supervised")], ADVANTAGE), logprobs={"behaviour": behaviour})
    measured = update_gradient(policy(), batch, micro_tokens=100)
    assert measured.gap_max == pytest.approx(0.75) and measured.gap_mean == pytest.approx(0.25 + 0.5 / (len(sampled) - 3))
    assert measured.counters["tokens_without_behaviour"] == 3


def test_a_sampled_token_without_context_is_counted() -> None:
    view = view_of([[([3, 4, 5], [0, 0, 0])], [([3, 4, 5], [-1, 0, 0])]])
    measured = update_gradient(policy(), batch_of(view, [term_of(view, "supervised")], [0.0, 0.0]), micro_tokens=10**6)
    assert measured.counters["first_tokens_without_context"] == 1


def test_gradients_are_those_of_the_batch_and_of_nothing_before() -> None:
    view = view_of(random_rollouts(6))
    batch, model = batch_of(view, [term_of(view, "supervised")], ADVANTAGE), policy()
    assert torch.equal(gradient(model, batch), gradient(model, batch))


def test_a_refused_batch_leaves_no_gradient() -> None:
    view = view_of(random_rollouts(6))
    good = batch_of(view, [term_of(view, "ppo_clip"), term_of(view, "supervised")], ADVANTAGE)
    term = good.terms[0]
    outside, infinite = term.weight_T + 1.0, np.where(term.mask_T, np.inf, 0.0)
    proximal = np.where(np.arange(len(view.id_T)) == np.flatnonzero(view.mask_T)[-1], -2000.0, -1.5)
    model = policy()
    for batch, error, words in (
        (replace(good, terms=(replace(term, weight_T=outside),)), UpdateRefused, "outside of its mask"),
        (replace(good, terms=(replace(term, weight_T=infinite),)), UpdateRefused, "not finite"),
        (replace(good, terms=()), UpdateRefused, "0 terms"),
        (replace(good, adv_T=good.adv_T[:-1]), UpdateRefused, "adv_T has shape"),
        (replace(good, pairs_P2=np.array([[0, 6]])), UpdateRefused, "pairs name rows"),
        (replace(good, text_only_Q=np.ones(6, dtype=np.bool_)), MethodError, "text-only"),
        (
            replace(good, adv_T=-np.abs(good.adv_T), terms=(term_of(view, "ppo_clip", dual_clip=None),), logprobs={"proximal": proximal}),
            UpdateRefused,
            "finite loss",
        ),
    ):
        update_gradient(model, good, micro_tokens=50)
        with pytest.raises(error, match=words):
            update_gradient(model, batch, micro_tokens=50)
        if words in ("finite loss", "text-only"):
            assert all(weight.grad is None for weight in model.parameters())
