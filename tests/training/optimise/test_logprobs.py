"""Log-probabilities of packed rows: each token given its own row, and nothing else."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ledger.errors import UpdateRefused
from tests.training.optimise.small_batches import CONFIG, VOCABULARY, policy
from training.models.causal_lm import CausalLM
from training.optimise.logprobs import Scorer, agreement, evaluating, scorer_of, token_scores, torch_threads
from training.optimise.micro_batches import pack, row_spans, shares, units

LENGTHS = [5, 17, 2, 9, 30, 1, 12]


def rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    row_T = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    return np.random.default_rng(seed).integers(0, VOCABULARY, size=len(row_T)).astype(np.int32), row_T


def transformers_twin(model: CausalLM) -> LlamaForCausalLM:
    twin = LlamaForCausalLM(LlamaConfig(**{key: value for key, value in CONFIG.items() if key != "architectures"}))
    twin.load_state_dict(model.state_dict())
    return twin.to(next(model.parameters()).dtype)


@pytest.mark.parametrize("kind", ["own", "transformers"])
@pytest.mark.parametrize("micro_tokens", [1, 40, 10**6])
def test_a_token_sees_its_own_row_and_no_padding(kind: str, micro_tokens: int) -> None:
    model = policy()
    twin = transformers_twin(model)
    ids, row_T = rows()
    scores = token_scores(model if kind == "own" else twin, ids, row_T, micro_tokens=micro_tokens, entropy=True)
    assert scores.entropy_T is not None
    # transformers takes rotary angles and norms in float32 whatever the weights are in.
    close = {"rtol": 0.0, "atol": 5e-6 if kind == "own" else 1e-10}
    for row in range(len(LENGTHS)):
        alone = torch.from_numpy(ids[row_T == row].astype(np.int64))
        with torch.no_grad():
            told = twin(input_ids=alone[None]).logits[0].log_softmax(-1)
        expected = told[:-1].gather(-1, alone[1:, None])[:, 0]
        assert np.isnan(scores.logprob_T[row_T == row][0])
        np.testing.assert_allclose(scores.logprob_T[row_T == row][1:], expected.numpy(), **close)
        np.testing.assert_allclose(scores.entropy_T[row_T == row][1:], -(told.exp() * told).sum(-1)[:-1].numpy(), **close)


def test_only_wanted_tokens_are_scored_and_rows_without_one_are_not_run() -> None:
    ids, row_T = rows()
    wanted = np.zeros(len(ids), dtype=np.bool_)
    wanted[[3, 10]] = True
    scores = token_scores(policy(), ids, row_T, micro_tokens=10**6, wanted_T=wanted)
    assert np.flatnonzero(~np.isnan(scores.logprob_T)).tolist() == [3, 10]
    assert scores.padding == pytest.approx(1 - (5 + 17) / (2 * 17))


@pytest.mark.parametrize("kind", ["own", "transformers"])
def test_logits_in_parts_give_the_same_numbers_and_gradients(kind: str) -> None:
    model = policy() if kind == "own" else transformers_twin(policy())
    ids, row_T = rows()
    at = torch.from_numpy(np.flatnonzero(np.diff(row_T, prepend=-1) == 0))
    found = []
    for at_once in (10**9, 7 * VOCABULARY):
        model.zero_grad()
        logprob, entropy = Scorer(model, logits_at_once=at_once)(torch.from_numpy(ids).long(), torch.from_numpy(row_T), at, entropy=True)
        (logprob * torch.arange(len(at))).sum().backward()
        assert entropy is not None
        found.append((logprob.detach(), entropy, torch.cat([p.grad.flatten() for p in model.parameters()])))
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(whole, parts, rtol=1e-11, atol=1e-11)


def test_temperature_divides_the_logits() -> None:
    model, (ids, row_T) = policy(), rows()
    hot = token_scores(scorer_of(model, temperature=2.0), ids, row_T, micro_tokens=10**6)
    with torch.no_grad():
        model.lm_head.weight.mul_(0.5)
    assert agreement(hot.logprob_T, token_scores(model, ids, row_T, micro_tokens=10**6).logprob_T).max < 1e-12


def test_a_model_that_changes_its_logits_runs_whole() -> None:
    class Capped(LlamaForCausalLM):
        def forward(self, *args, **kwargs):
            out = super().forward(*args, **kwargs)
            out.logits = 0.1 * torch.tanh(out.logits / 0.1)
            return out

    plain = transformers_twin(policy())
    capped = Capped(plain.config)
    capped.load_state_dict(plain.state_dict())
    assert scorer_of(plain).way == "split" and scorer_of(capped).way == "whole"
    ids, row_T = rows()
    scores = token_scores(capped, ids, row_T, micro_tokens=10**6)
    alone = torch.from_numpy(ids[row_T == 1].astype(np.int64))
    with torch.no_grad():
        expected = capped(input_ids=alone[None]).logits[0, :-1].log_softmax(-1).gather(-1, alone[1:, None])[:, 0]
    np.testing.assert_allclose(scores.logprob_T[row_T == 1][1:], expected.numpy(), atol=1e-5)


def test_half_precision_sums_in_float32() -> None:
    model = policy(dtype=torch.bfloat16)
    ids, row_T = rows()
    at = torch.tensor([1, 2])
    logprob, _ = Scorer(model)(torch.from_numpy(ids).long(), torch.from_numpy(row_T), at)
    assert logprob.dtype == torch.float32
    exact, autocast = policy(dtype=torch.float32), scorer_of(policy(dtype=torch.float32), precision="bfloat16")
    gap = agreement(*(token_scores(m, ids, row_T, micro_tokens=10**6).logprob_T for m in (exact, autocast)))
    assert 0 < gap.mean < 0.05 and gap.tokens == len(ids) - len(LENGTHS) and gap.missing == len(LENGTHS)


def test_agreement_by_hand() -> None:
    told = agreement(np.array([-1.0, np.nan, -3.0, -2.0]), np.array([-1.5, -1.0, -3.25, np.nan]))
    assert (told.mean, told.max, told.tokens, told.missing) == (0.375, 0.5, 2, 2)
    with pytest.raises(UpdateRefused, match=r"\(2,\)"):
        agreement(np.zeros(2), np.zeros(3))


def test_rows_that_are_not_numbered_in_order_are_refused() -> None:
    for row_T in ([0, 0, 2], [1, 0], [0, 1, 0]):
        with pytest.raises(UpdateRefused, match="ascending"):
            row_spans(np.array(row_T), 3)


def test_rows_are_packed_by_length_within_the_budget_and_pairs_stay_together() -> None:
    length_Q = np.array([3, 50, 4, 48, 5, 200])
    together = units(np.arange(6), np.array([[0, 1], [1, 2]]))
    assert sorted(sorted(unit.tolist()) for unit in together) == [[0, 1, 2], [3], [4], [5]]
    packed = [sorted(rows.tolist()) for rows in pack(together, length_Q, micro_tokens=150)]
    assert packed == [[5], [0, 1, 2], [3, 4]]
    dealt = shares(together, length_Q, 2)
    assert sorted(sorted(row for unit in mine for row in unit.tolist()) for mine in dealt) == [[0, 1, 2, 3, 4], [5]]


def test_dropout_is_off_while_scoring_and_back_afterwards() -> None:
    model = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(1, 1).eval())
    with evaluating(model):
        assert not model[0].training
    assert model[0].training and not model[1].training


def test_threads_are_put_back() -> None:
    before = torch.get_num_threads()
    with torch_threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
