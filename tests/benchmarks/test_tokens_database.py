"""Token tables in PostgreSQL against arrays a call as int32 and as JSON: bytes on disk, and verified reading in interleaved rounds."""

import hashlib
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import psycopg
import pytest

from ledger.events import ModelCalled
from ledger.ids import event_id
from ledger.ledger import LedgerHandle
from ledger.token_calls import IDS, LOGPROBS, TokenCall
from ledger.token_link import Linker
from ledger.token_packing import pack_ended
from ledger.token_reading import read_tokens
from tests.benchmarks.token_corpus import corpus, long_rollout, source_ids, tokenizer
from tests.token_histories import held

pytestmark = pytest.mark.bench
ROUNDS = 7
CONTROLS = """
CREATE TABLE control_int32 (event_id uuid PRIMARY KEY, stream bigint NOT NULL, prompt bytea, sampled bytea, logprobs bytea,
  prompt_sha bytea, sampled_sha bytea, logprobs_sha bytea);
ALTER TABLE control_int32 ALTER prompt SET STORAGE EXTERNAL, ALTER sampled SET STORAGE EXTERNAL, ALTER logprobs SET STORAGE EXTERNAL;
CREATE INDEX ON control_int32 (stream);
CREATE TABLE control_json (event_id uuid PRIMARY KEY, stream bigint NOT NULL, arrays text NOT NULL, prompt_sha bytea, sampled_sha bytea,
  logprobs_sha bytea);
CREATE INDEX ON control_json (stream);
"""
_SIZE = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c WHERE c.relname ~ %s AND c.relkind = 'r'"


def capture(ledger: LedgerHandle, rollouts: list[list[TokenCall]]) -> None:
    """Append the calls as a gateway does, each beside its parent."""
    for number, calls in enumerate(rollouts):
        linker, events = Linker(), []
        for index, call in enumerate(calls):
            assert call.prompt is not None and call.sampled is not None and call.logprobs is not None
            rollout_id, call_id = f"r{number}", f"c{index}"
            arrays = (call.prompt.tobytes(), call.sampled.tobytes(), call.logprobs.tobytes())
            own = held(ledger, arrays, rollout_id, call_id, linker.find(call.prompt))
            body = ModelCalled(
                call_id=call_id, rollout_id=rollout_id, index=index, participant="agent", role="agent", status="completed",
                prompt_ids=own.prompt_ids, sampled_ids=own.sampled_ids, logprobs=own.logprobs, attempts=1, latency_s=0.1,
            )  # fmt: skip
            linker.add(event_id(ledger.ledger_id, ledger.project, f"rollout-r{number}", f"called:{call_id}"), call.prompt, call.sampled)
            events.append(ledger.new(body, tokens=own.staged))
        ledger.append(events)


def fill_controls(conn: psycopg.Connection[Any], rollouts: list[list[TokenCall]]) -> None:
    conn.execute(CONTROLS)
    for number, calls in enumerate(rollouts):
        for call in calls:
            arrays = [array.tobytes() for array in (call.prompt, call.sampled, call.logprobs) if array is not None]
            shas = [hashlib.sha256(data).digest() for data in arrays]
            conn.execute("INSERT INTO control_int32 VALUES (%s, %s, %b, %b, %b, %b, %b, %b)", (call.event_id, number, *arrays, *shas))
            text = json.dumps(
                [array.tolist() for array in (call.prompt, call.sampled, call.logprobs) if array is not None], separators=(",", ":")
            )
            conn.execute("INSERT INTO control_json VALUES (%s, %s, %s, %b, %b, %b)", (call.event_id, number, text, *shas))


def ours(conn: psycopg.Connection[Any], streams: list[int]) -> int:
    return len(read_tokens(conn, streams))


def int32(conn: psycopg.Connection[Any], numbers: list[int], *, verify: bool = True) -> int:
    columns = "event_id::text, prompt, sampled, logprobs, prompt_sha, sampled_sha, logprobs_sha"
    with conn.cursor(binary=True) as cursor:
        rows = cursor.execute(f"SELECT {columns} FROM control_int32 WHERE stream = ANY (%s)", (numbers,)).fetchall()
    found = {}
    for call, prompt, sampled, logprobs, *shas in rows:
        if verify:
            for data, sha in zip((prompt, sampled, logprobs), shas, strict=True):
                assert hashlib.sha256(data).digest() == sha
        found[call] = (np.frombuffer(prompt, IDS), np.frombuffer(sampled, IDS), np.frombuffer(logprobs, LOGPROBS))
    return len(found)


def as_json(conn: psycopg.Connection[Any], numbers: list[int], *, loads: Callable[[Any], Any] = json.loads, verify: bool = True) -> int:
    with conn.cursor(binary=True) as cursor:
        rows = cursor.execute(
            "SELECT event_id::text, arrays, prompt_sha, sampled_sha, logprobs_sha FROM control_json WHERE stream = ANY (%s)", (numbers,)
        ).fetchall()
    found = {}
    for call, text, *shas in rows:
        arrays = [np.array(values, dtype) for values, dtype in zip(loads(text), (IDS, IDS, LOGPROBS), strict=True)]
        if verify:
            for array, sha in zip(arrays, shas, strict=True):
                assert hashlib.sha256(array.tobytes()).digest() == sha
        found[call] = arrays
    return len(found)


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} [{min(values):.3g}, {max(values):.3g}]"


def size(ledger: LedgerHandle, pattern: str) -> int:
    with psycopg.connect(ledger.url) as conn:
        row = conn.execute(_SIZE, (pattern,)).fetchone()
    assert row is not None
    return int(row[0] or 0)


def compare(ledger: LedgerHandle, name: str, rollouts: list[list[TokenCall]]) -> tuple[float, float]:
    """Print bytes and speeds; the byte ratios to int32 and to JSON a call."""
    sampled = sum(len(call.sampled) for calls in rollouts for call in calls if call.sampled is not None)
    positions = sum(len(call.prompt) for calls in rollouts for call in calls if call.prompt is not None) + sampled
    capture(ledger, rollouts)
    staged = size(ledger, "^token_live$")
    began = time.perf_counter()
    packed = pack_ended(ledger)
    took = time.perf_counter() - began
    assert packed.faults == ()
    with psycopg.connect(ledger.url, autocommit=True) as conn:
        conn.execute("VACUUM FULL token_live")
        fill_controls(conn, rollouts)
        conn.execute("ANALYZE")
        streams = [int(row[0]) for row in conn.execute("SELECT stream_id FROM token_pack ORDER BY 1")]
        own, raw, text = size(ledger, "^token_"), size(ledger, "^control_int32$"), size(ledger, "^control_json$")
        print(f"\n{name}: {packed.calls} calls, {positions} tokens, {sampled} sampled; packed in {took:.2f} s")
        print(f"  bytes a sampled token on disk: {own / sampled:.2f} packed, {staged / sampled:.2f} while staged,", end=" ")
        print(f"{raw / sampled:.1f} int32, {text / sampled:.1f} JSON; int32 / ours {raw / own:.1f}, JSON / ours {text / own:.1f}")
        numbers = list(range(len(rollouts)))
        works: dict[str, Callable[[], int]] = {
            "ours, verified": lambda: ours(conn, streams), "int32, verified": lambda: int32(conn, numbers),
            "int32, not verified": lambda: int32(conn, numbers, verify=False), "JSON, verified": lambda: as_json(conn, numbers),
            "JSON, not verified": lambda: as_json(conn, numbers, verify=False),
            "orjson, verified": lambda: as_json(conn, numbers, loads=orjson.loads),
        }  # fmt: skip
        times: dict[str, list[float]] = {what: [] for what in works}
        for _ in range(ROUNDS):
            for what, work in works.items():
                began = time.perf_counter()
                assert work() == packed.calls
                times[what].append(time.perf_counter() - began)
    for what, taken in times.items():
        ratios = [theirs / mine for mine, theirs in zip(times["ours, verified"], taken, strict=True)]
        print(f"  {what}: {shown([positions / one / 1e6 for one in taken])} M tokens/s, ours is {shown(ratios)} times as fast")
    return raw / own, text / own


def test_token_tables_against_arrays_a_call(ledger: LedgerHandle) -> None:
    name, encoder = tokenizer()
    print(f"\ntokenizer: {name}")
    to_int32, to_json = compare(ledger, "corpus", list(corpus(source_ids(encoder), np.random.default_rng(7))))
    assert to_int32 >= 25 and to_json >= 12


def test_a_long_rollout_against_arrays_a_call(ledger: LedgerHandle) -> None:
    _, encoder = tokenizer()
    compare(ledger, "long rollout", [long_rollout(source_ids(encoder), np.random.default_rng(7))])
