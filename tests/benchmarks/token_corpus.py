"""A corpus of rollouts for the token benchmarks: real BPE ids of Python source. Reads files; the tokenizer is SmolLM2's where it lies ready."""

import sysconfig
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ledger.token_calls import TokenCall

SOURCES = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
SMOLLM2 = Path(__file__).resolve().parents[2] / ".tally/models/smollm2-135m-instruct/tokenizer.json"


def tokenizer() -> tuple[str, Tokenizer]:
    """Its name and the tokenizer: SmolLM2's when a demo has made it, else a byte-level BPE of the same size trained on the sources."""
    if SMOLLM2.is_file():
        return "SmolLM2", Tokenizer.from_file(str(SMOLLM2))
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=49_152, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    made.train([str(path) for path in SOURCES], trainer)
    return "BPE trained on the standard library", made


def source_ids(encoder: Tokenizer) -> NDArray[np.int32]:
    """The standard library's modules as one run of ids."""
    texts = [path.read_text("utf-8", "replace") for path in SOURCES]
    return np.concatenate([np.asarray(encoding.ids, "<i4") for encoding in encoder.encode_batch(texts)])


def sampled_logprobs(count: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Logprobs as an engine gives them: float32 log-softmax of peaked logits, one sampled entry a row."""
    logits = (rng.normal(0.0, 2.0, (count, 64)) + np.where(np.arange(64) == 0, rng.gamma(3.0, 5.0, (count, 1)), 0.0)).astype("<f4")
    shifted = logits - logits.max(axis=1, keepdims=True)
    logprobs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True, dtype="<f4"))
    chosen = (np.cumsum(np.exp(logprobs), axis=1) < rng.random((count, 1))).sum(axis=1).clip(0, 63)
    return np.ascontiguousarray(logprobs[np.arange(count), chosen])


def _length(mean: float, rng: np.random.Generator) -> int:
    return max(1, int(rng.gamma(2.0, mean / 2.0)))


def rollout(
    opening: NDArray[np.int32], ids: NDArray[np.int32], rng: np.random.Generator, *, calls: int, observed: float
) -> list[TokenCall]:
    """An append-only rollout: `opening`, then about 121 sampled and `observed` tool tokens a turn."""
    made: list[TokenCall] = []
    prompt = opening
    for _ in range(calls):
        count = _length(121, rng)
        start = int(rng.integers(0, len(ids) - count))
        sampled = ids[start : start + count]
        made.append(TokenCall(str(UUID(bytes=rng.bytes(16))), prompt, sampled, sampled_logprobs(count, rng)))
        size = _length(observed, rng)
        start = int(rng.integers(0, len(ids) - size))
        prompt = np.concatenate([prompt, sampled, ids[start : start + size]])
    return made


def corpus(ids: NDArray[np.int32], rng: np.random.Generator) -> Iterator[list[TokenCall]]:
    """48 rollouts: 6 tasks of 8, 30 turns each, a prompt of about 2,400 tokens a task."""
    for _ in range(6):
        size = _length(2400, rng)
        start = int(rng.integers(0, len(ids) - size))
        for _ in range(8):
            yield rollout(ids[start : start + size], ids, rng, calls=30, observed=98)


def long_rollout(ids: NDArray[np.int32], rng: np.random.Generator) -> list[TokenCall]:
    """200 turns on a prompt that begins with about 40,000 tokens and ends beyond 100,000."""
    start = int(rng.integers(0, len(ids) - 40_000))
    return rollout(ids[start : start + 40_000], ids, rng, calls=200, observed=200)
