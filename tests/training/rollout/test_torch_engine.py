"""The torch engine: the numbers of transformers, answers that depend on nothing but their own call, and no stale weights."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from ledger.errors import EngineFailed, SettingsError
from tests.tiny_policy import tiny_policy
from training.rollout.sampling_calls import Sample, SampleRequest, SamplingSettings, settings_of
from training.rollout.torch_engine import TorchEngine
from training.rollout.torch_sampler import kept

PLAIN = SamplingSettings(max_tokens=24)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_policy(tmp_path_factory.mktemp("policies") / "tiny")


@pytest.fixture
def engine(folder: Path) -> TorchEngine:
    made = TorchEngine()
    made.serve(folder, "v1")
    return made


def scorer(folder: Path, dtype: torch.dtype = torch.float32) -> Callable[[Sequence[int], int], NDArray[np.float64]]:
    """Log-probabilities as transformers computes them."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()

    def score(ids: Sequence[int], prompt: int) -> NDArray[np.float64]:
        with torch.inference_mode():
            logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0].float(), -1)
        found: NDArray[np.float64] = logprobs[prompt - 1 : -1].gather(1, torch.tensor(ids[prompt:])[:, None])[:, 0].double().numpy()
        return found

    return score


def prompt(n: int, length: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(n).integers(7, 64, length)]


def request(n: int, length: int, settings: SamplingSettings = PLAIN, key: str | None = None) -> SampleRequest:
    return SampleRequest(key or f"r{n}", prompt(n, length), 1000 + n, settings)


def same(left: Sample, right: Sample) -> bool:
    return left.ids == right.ids and np.array_equal(left.logprobs, right.logprobs) and left.finish_reason == right.finish_reason


@pytest.mark.parametrize("more", [{}, {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16}], ids=["tiny", "grouped"])
def test_logprobs_are_those_of_transformers_with_the_cache_and_without(tmp_path: Path, more: dict[str, int]) -> None:
    folder = tiny_policy(tmp_path / "p", **more)
    engine, score, ids = TorchEngine(), scorer(folder), prompt(1, 150)
    engine.serve(folder, "v1")
    assert np.abs(engine.logprobs(ids, 40) - score(ids, 40)).max() < 2e-5
    assert np.abs(engine.cached_logprobs(ids, 40, key="a") - score(ids, 40)).max() < 2e-5
    # The second time the prompt's first half comes from the cache.
    assert np.abs(engine.cached_logprobs(ids, 40, key="a") - score(ids, 40)).max() < 2e-5


def test_sampled_logprobs_are_the_trainers_over_many_turns(engine: TorchEngine, folder: Path) -> None:
    score, history = scorer(folder), {f"r{n}": prompt(n, 30 + n) for n in range(5)}
    for turn in range(4):
        requests = [SampleRequest(key, ids, turn * 100 + n, PLAIN) for n, (key, ids) in enumerate(history.items())]
        before = [len(ids) for ids in history.values()]
        samples = engine.sample(requests)
        for (key, ids), sample, length in zip(history.items(), samples, before, strict=True):
            whole = [*ids, *sample.ids]
            assert np.abs(score(whole, length) - sample.logprobs).max() < 2e-5
            # All that was fed before is reused: everything but the last sampled token and the new words.
            assert sample.cached == (0 if turn == 0 else length - 5 - 1)
            history[key] = [*whole, *prompt(turn, 5)]


def test_only_a_prefix_that_really_holds_is_reused(engine: TorchEngine, folder: Path) -> None:
    first = engine.sample([request(1, 40)])[0]
    other = [*prompt(1, 40)[:25], *prompt(2, 30)]
    again = engine.sample([SampleRequest("r1", other, 5, PLAIN)])[0]
    assert (first.cached, again.cached) == (0, 25)
    assert np.abs(scorer(folder)([*other, *again.ids], 55) - again.logprobs).max() < 2e-5
    engine.release("r1")
    assert engine.sample([SampleRequest("r1", other, 5, PLAIN)])[0].cached == 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_answer_is_the_same_to_the_bit_alone_and_among_others(folder: Path, dtype: str) -> None:
    settings = [
        SamplingSettings(1.0 - 0.1 * (n % 3), 0.05 * (n % 2), (0, 20)[n % 2], (1.0, 0.9)[n % 2], max_tokens=8 + n % 30) for n in range(24)
    ]
    requests = [request(n, 5 + 8 * n, settings[n]) for n in range(24)]
    more = [[7, 8, 9 + n] for n in range(24)]

    def two_turns(each: int) -> list[Sample]:
        engine, found = TorchEngine(dtype=dtype), []
        engine.serve(folder, "v1")
        for start in range(0, 24, each):
            found += engine.sample(requests[start : start + each])
        seconds = [
            SampleRequest(r.key, [*r.prompt, *s.ids, *more[n]], r.seed + 1, r.settings)
            for n, (r, s) in enumerate(zip(requests, found, strict=True))
        ]
        for start in range(0, 24, each):
            found += engine.sample(seconds[start : start + each])
        return found

    alone, few, all_together = two_turns(1), two_turns(16), two_turns(24)
    assert len({sample.ids for sample in alone}) > 40
    assert all(map(same, alone, few))
    assert all(map(same, alone, all_together))


def test_noise_belongs_to_a_seed_and_a_place(engine: TorchEngine) -> None:
    ids = prompt(3, 20)

    def answer(seed: int) -> tuple[int, ...]:
        return engine.sample([SampleRequest(f"seed{seed}", ids, seed, PLAIN)])[0].ids

    assert answer(1) == answer(1)
    assert len({answer(seed) for seed in range(20)}) == 20


def test_samples_follow_the_distribution(engine: TorchEngine) -> None:
    ids, count = prompt(4, 12), 4000
    requests = [SampleRequest(f"k{n}", ids, n, SamplingSettings(temperature=0.7, max_tokens=1)) for n in range(count)]
    samples = engine.sample(requests)
    stated = {sample.ids[0]: float(np.exp(sample.logprobs[0])) for sample in samples}
    found = {token: sum(sample.ids[0] == token for sample in samples) / count for token in stated}
    assert sum(stated.values()) > 0.97
    assert max(abs(found[token] - stated[token]) / np.sqrt(stated[token] * (1 - stated[token]) / count) for token in stated) < 4.5


def test_logprobs_are_those_of_the_distribution_that_was_drawn_from(engine: TorchEngine, folder: Path) -> None:
    ids = prompt(5, 20)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0, -1]
    settings = SamplingSettings(temperature=0.7, top_p=0.8, max_tokens=1)
    wanted = torch.log_softmax(kept(logits / 0.7, settings), -1)
    for seed in range(10):
        sample = engine.sample([SampleRequest("a", ids, seed, settings)])[0]
        assert abs(float(wanted[sample.ids[0]]) - float(sample.logprobs[0])) < 2e-5
    greedy = engine.sample([SampleRequest("a", ids, 0, SamplingSettings(temperature=0.0, max_tokens=1))])[0]
    assert greedy.ids[0] == int(logits.argmax())
    assert abs(float(torch.log_softmax(logits, -1)[greedy.ids[0]]) - float(greedy.logprobs[0])) < 2e-5


def test_filters_keep_what_they_say() -> None:
    logits = torch.log(torch.tensor([0.4, 0.3, 0.2, 0.1]))

    def left(**settings: float) -> list[bool]:
        return [bool(value > -torch.inf) for value in kept(logits, SamplingSettings(**settings))]  # type: ignore[arg-type]

    assert left(top_k=2) == [True, True, False, False]
    assert left(top_p=0.65) == [True, True, False, False]
    assert left(top_p=0.75) == [True, True, True, False]
    assert left(min_p=0.6) == [True, True, False, False]
    # The cut is applied to what is left: of 0.4 and 0.3 the first has more than half.
    assert left(top_k=2, top_p=0.5) == [True, False, False, False]


def test_an_answer_ends_at_a_stop_token_or_is_cut(engine: TorchEngine) -> None:
    samples = engine.sample([request(n, 20, SamplingSettings(max_tokens=60)) for n in range(32)])
    stopped = [sample for sample in samples if sample.finish_reason == "stop"]
    cut = [sample for sample in samples if sample.finish_reason == "length"]
    assert stopped and cut
    assert all(sample.ids[-1] == 1 and 1 not in sample.ids[:-1] for sample in stopped)
    assert all(len(sample.ids) == 60 and 1 not in sample.ids for sample in cut)


def test_a_prompt_without_room_for_its_answer_is_refused(engine: TorchEngine) -> None:
    engine.sample([request(1, 512 - 24)])
    with pytest.raises(EngineFailed, match="a prompt of 489 tokens and an answer of 24; allowed: 1 or more, and 512 together"):
        engine.sample([request(1, 512 - 23)])


def test_serving_drops_what_was_cached_and_the_probe_passes(tmp_path: Path, folder: Path) -> None:
    engine, other = TorchEngine(), tiny_policy(tmp_path / "other", seed=9)
    refreshed = engine.serve(folder, "v1", score=scorer(folder))
    assert (refreshed.version, refreshed.cache_reset) == ("v1", True)
    assert refreshed.probe_gap_nats is not None and refreshed.probe_gap_nats < 2e-5
    first = engine.sample([request(1, 40)])[0]
    assert engine.serve(other, "v2", score=scorer(other)).probe_gap_nats is not None
    longer = [*prompt(1, 40), *first.ids, 8, 9]
    sample = engine.sample([SampleRequest("r1", longer, 3, PLAIN)])[0]
    assert sample.cached == 0
    assert np.abs(scorer(other)([*longer, *sample.ids], len(longer)) - sample.logprobs).max() < 2e-5


def test_other_weights_than_the_trainers_stop_the_engine(tmp_path: Path, folder: Path) -> None:
    engine, other = TorchEngine(), tiny_policy(tmp_path / "other", seed=9)
    with pytest.raises(EngineFailed, match=r"differ by .* nats on the probe of v2; allowed: 0.001"):
        engine.serve(folder, "v2", score=scorer(other))
    assert engine.version is None
    with pytest.raises(EngineFailed, match="serves nothing"):
        engine.sample([request(1, 20)])


class Forgetful(TorchEngine):
    """An engine that takes new weights and keeps old prefixes."""

    def close(self) -> None:
        self.version, self._served = None, None


def test_the_probe_sees_a_cache_that_was_not_reset(tmp_path: Path, folder: Path) -> None:
    other = tiny_policy(tmp_path / "other", seed=9)
    engine = Forgetful()
    engine.serve(folder, "v1", score=scorer(folder))
    with pytest.raises(EngineFailed, match="differ by"):
        engine.serve(other, "v2", score=scorer(other))


def test_bfloat16_weights_are_scored_as_transformers_does(tmp_path: Path) -> None:
    folder = tiny_policy(tmp_path / "p", dtype=torch.bfloat16, spread=0.1)
    engine, score, ids = TorchEngine(), scorer(folder, torch.bfloat16), prompt(1, 120)
    engine.serve(folder, "v1")
    assert np.abs(engine.logprobs(ids, 40) - score(ids, 40)).max() < 0.1
    exact = TorchEngine(dtype="float32")
    exact.serve(folder, "v1", score=scorer(folder, torch.float32))
    assert 0 < np.abs(engine.logprobs(ids, 40) - exact.logprobs(ids, 40)).max() < 0.1


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"tie_word_embeddings": True}, "tie_word_embeddings: true"),
        ({"attention_bias": True}, "attention_bias True; the torch engine allows False"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
    ],
)
def test_what_cannot_be_served_rightly_is_refused(tmp_path: Path, change: dict[str, object], error: str) -> None:
    with pytest.raises(EngineFailed, match=error):
        TorchEngine().serve(tiny_policy(tmp_path / "p", **change), "v1")


def test_a_sampling_field_that_is_not_honoured_is_refused() -> None:
    assert settings_of({"model": "m", "temperature": 0, "max_tokens": 5, "tool_choice": "auto"}) == SamplingSettings(0.0, max_tokens=5)
    with pytest.raises(SettingsError, match="frequency_penalty is 0.5; the torch engine honours temperature, min_p"):
        settings_of({"frequency_penalty": 0.5})
    with pytest.raises(SettingsError, match="top_p is 0.0; allowed: above 0, up to 1"):
        settings_of({"top_p": 0})
