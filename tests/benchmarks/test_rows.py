"""Rows built a second, against the least that a builder has to do: joining the tokens of the last call with the sampled spans.

The control is the same for any builder: concatenate, and fill mask and log-probabilities. What is above it is the search for prefixes.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.benchmarks.rounds import interleaved, report
from training.row_builder import build_rows
from training.rows import SampledTokens

pytestmark = pytest.mark.bench
CONTROL = "last call's tokens, mask and logprobs (control)"


def conversation(
    rng: np.random.Generator, calls: int, opening: int, sampled: int, observed: int, *, strip: bool = False
) -> list[SampledTokens]:
    """A rollout of `calls` calls; with `strip` each prompt lacks the first half of the sample before it, so every call opens a row."""
    prompt, made = rng.integers(0, 49_152, opening).astype(np.int32), []
    for n in range(calls):
        said = rng.integers(0, 49_152, sampled).astype(np.int32)
        logprobs = -rng.random(sampled).astype(np.float32)
        made.append(SampledTokens(f"c{n}", n, "agent", "agent", prompt, said, logprobs, True, finish_reason="stop"))
        prompt = np.concatenate([prompt, said[sampled // 2 :] if strip else said, rng.integers(0, 49_152, observed).astype(np.int32)])
    return made


def joined(calls: Sequence[SampledTokens]) -> int:
    """What any builder does once it knows that the rollout is append-only; the number of trained tokens."""
    ids = np.concatenate([calls[-1].prompt_ids, calls[-1].sampled_ids])
    mask, logprob, step = np.zeros(len(ids), np.bool_), np.full(len(ids), np.nan, np.float32), np.full(len(ids), -1, np.int32)
    for n, call in enumerate(calls):
        span = slice(len(call.prompt_ids), len(call.prompt_ids) + len(call.sampled_ids))
        mask[span], logprob[span], step[span] = True, call.logprobs, n
    return int(mask.sum())


def rate(work: Callable[[], int], count: int, expected: int) -> Callable[[], float]:
    """An arm: rollouts a second."""

    def arm() -> float:
        begun = time.process_time()
        assert work() == expected
        return count / (time.process_time() - begun)

    return arm


@pytest.mark.parametrize(
    ("title", "count", "shape"),
    [
        ("14 calls, 2,400 + 14 × (120 + 100) tokens", 40, (14, 2400, 120, 100)),
        ("14 calls of a tiny policy, 60 + 14 × (5 + 8) tokens", 400, (14, 60, 5, 8)),
        ("200 calls, 40,000 + 200 × (120 + 200) tokens", 2, (200, 40_000, 120, 200)),
    ],
)
def test_append_only_rollouts_a_second(title: str, count: int, shape: tuple[int, int, int, int]) -> None:
    rng = np.random.default_rng(7)
    rollouts = [conversation(rng, *shape) for _ in range(count)]
    trained = count * shape[0] * shape[2]

    def built() -> int:
        rows = [build_rows("r", calls).rows for calls in rollouts]
        assert all(len(made) == 1 for made in rows)
        return sum(int(row.mask_T.sum()) for made in rows for row in made)

    rates = interleaved({
        CONTROL: rate(lambda: sum(map(joined, rollouts)), count, trained), "rows": rate(built, count, trained)
    })  # fmt: skip
    report(f"Append-only rollouts, {title}", rates, CONTROL, "rollouts/CPU-s")


def test_rollouts_a_second_in_which_every_call_opens_a_row() -> None:
    rng = np.random.default_rng(7)
    rollouts = [conversation(rng, 14, 2400, 120, 100, strip=True) for _ in range(10)]

    def built() -> int:
        rows = [build_rows("r", calls).rows for calls in rollouts]
        assert all([row.open_reason for row in made] == ["start", *["history_rewritten"] * 13] for made in rows)
        return sum(int(row.mask_T.sum()) for made in rows for row in made)

    rates = interleaved({CONTROL: rate(lambda: sum(map(joined, rollouts)), 10, 10 * 14 * 120), "rows": rate(built, 10, 10 * 14 * 120)})
    report("Thinking stripped before each of 14 calls", rates, CONTROL, "rollouts/CPU-s")
