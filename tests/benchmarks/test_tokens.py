"""Token traces: bytes of packs against arrays a call, and verified reconstruction against decoding and hashing each call, interleaved."""

import hashlib
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from ledger.token_calls import IDS, LOGPROBS, CallCommitments, TokenCall
from ledger.token_link import Linker
from ledger.token_pack import pack, unpack
from ledger.token_sequences import reconstruct
from tests.benchmarks.token_corpus import corpus, long_rollout, source_ids, tokenizer
from tests.token_histories import SALT, commitments

pytestmark = pytest.mark.bench
ROUNDS = 5
ARRAYS = (("prompt", IDS), ("sampled", IDS), ("logprobs", LOGPROBS))


@dataclass(frozen=True)
class Stored:
    """One rollout in each layout, with what its events say."""

    said: dict[str, CallCommitments]
    pack: bytes
    int32: dict[str, list[bytes]]
    json: dict[str, str]


def stored(calls: list[TokenCall]) -> Stored:
    int32 = {call.event_id: [getattr(call, name).tobytes() for name, _ in ARRAYS] for call in calls}
    text = {call.event_id: json.dumps([getattr(call, name).tolist() for name, _ in ARRAYS], separators=(",", ":")) for call in calls}
    return Stored(commitments(calls), pack(calls), int32, text)


def from_packs(rollouts: list[Stored]) -> None:
    for rollout in rollouts:
        assert len(reconstruct(unpack(rollout.pack), rollout.said, SALT).calls) == len(rollout.said)


def check(said: CallCommitments, arrays: list[bytes]) -> None:
    for (name, _), data in zip(ARRAYS, arrays, strict=True):
        assert hashlib.sha256(SALT + data).hexdigest() == getattr(said, name).sha256


def from_int32(rollouts: list[Stored]) -> None:
    for rollout in rollouts:
        for event_id, arrays in rollout.int32.items():
            check(rollout.said[event_id], arrays)
            _ = [np.frombuffer(data, dtype) for (_, dtype), data in zip(ARRAYS, arrays, strict=True)]


def from_json(rollouts: list[Stored]) -> None:
    for rollout in rollouts:
        for event_id, text in rollout.json.items():
            arrays = [np.array(values, dtype) for (_, dtype), values in zip(ARRAYS, json.loads(text), strict=True)]
            check(rollout.said[event_id], [array.tobytes() for array in arrays])


def seconds(work: Callable[[list[Stored]], None], rollouts: list[Stored]) -> float:
    began = time.perf_counter()
    work(rollouts)
    return time.perf_counter() - began


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} [{min(values):.3g}, {max(values):.3g}]"


def table(name: str, rollouts: list[list[TokenCall]]) -> tuple[float, float]:
    """Print sizes and speeds; the byte ratios to int32 and to JSON a call."""
    kept = [stored(calls) for calls in rollouts]
    sampled = sum(len(call.sampled) for calls in rollouts for call in calls if call.sampled is not None)
    positions = sum(len(call.prompt) for calls in rollouts for call in calls if call.prompt is not None)
    rows = [row for rollout in kept for row in unpack(rollout.pack)]
    unique = sampled + sum(len(row.suffix) for row in rows if row.suffix is not None)
    packed = sum(len(rollout.pack) for rollout in kept)
    int32 = sum(len(data) for rollout in kept for arrays in rollout.int32.values() for data in arrays)
    text = sum(len(value.encode()) for rollout in kept for value in rollout.json.values())
    print(f"\n{name}: {len(kept)} rollouts, {len(rows)} calls, {positions} prompt positions, {sampled} sampled, {unique} unique tokens")
    print(f"  bytes a sampled token: pack {packed / sampled:.2f}, int32 {int32 / sampled:.1f}, JSON {text / sampled:.1f};", end=" ")
    print(f"int32 / pack {int32 / packed:.1f}, JSON / pack {text / packed:.1f}; pack {packed / unique:.2f} bytes a unique token")
    ours, decoded, parsed = [], [], []
    for _ in range(ROUNDS):
        decoded.append(seconds(from_int32, kept))
        ours.append(seconds(from_packs, kept))
        parsed.append(seconds(from_json, kept))
    for control, times in (("int32", decoded), ("JSON", parsed)):
        ratios = [theirs / mine for mine, theirs in zip(ours, times, strict=True)]
        speeds = [[(positions + sampled) / took / 1e6 for took in each] for each in (ours, times)]
        print(f"  verified in memory: {shown(speeds[0])} M tokens/s, {control} a call {shown(speeds[1])}, ratio {shown(ratios)}")
    return int32 / packed, text / packed


def linked(calls: list[TokenCall]) -> None:
    """Print how long a call takes to find its parent and to become known."""
    linker, took = Linker(), []
    for call in calls:
        assert call.prompt is not None
        began = time.perf_counter()
        linker.find(call.prompt)
        linker.add(call.event_id, call.prompt, call.sampled)
        took.append(1e3 * (time.perf_counter() - began))
    print(f"  linked in {shown(took)} ms a call")


def test_packs_against_arrays_a_call() -> None:
    name, encoder = tokenizer()
    print(f"\ntokenizer: {name}")
    ids = source_ids(encoder)
    rng = np.random.default_rng(7)
    to_int32, to_json = table("corpus", list(corpus(ids, rng)))
    assert to_int32 >= 25 and to_json >= 12
    long = long_rollout(ids, rng)
    began = time.perf_counter()
    packed = pack(long)
    took = time.perf_counter() - began
    table(f"long rollout (packed in {took:.2f} s)", [long])
    linked(long)
    assert len(packed) <= 12 * len(np.concatenate([long[-1].prompt, long[-1].sampled]))
