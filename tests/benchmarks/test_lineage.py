"""Closure by kind against an in-memory closure over the same edges, and a whole trace against a primary-key look-up, interleaved."""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

from ledger import lineage_graph, lineage_read, recall
from ledger.events import ModelCallDispatched, ModelCalled, RolloutStarted
from ledger.ids import node_id
from ledger.ledger import LedgerHandle
from ledger.lineage_graph import Graph
from ledger.store import New
from tests.update_histories import VERIFIERS, Training, digest

pytestmark = pytest.mark.bench
EVENTS = int(os.environ.get("TALLY_BENCH_EVENTS", "100000"))
ROUNDS, CALLS, BATCH = 7, 3, 4000


def events_of(ledger: LedgerHandle, made: Training, *, calls: int = CALLS) -> Iterator[New]:
    """Events without end: updates of eight groups of eight rollouts, each with model calls whose request and response are blobs."""
    yield from map(ledger.new, made.base())
    while True:
        for body in made.update():
            yield ledger.new(body)
            if isinstance(body, RolloutStarted):
                yield from calls_of(ledger, body.rollout_id, calls)


def calls_of(ledger: LedgerHandle, rollout_id: str, calls: int) -> Iterator[New]:
    for index in range(calls):
        call_id = f"{rollout_id}.{index}"
        request, response = (ledger.pending(f"{call_id} {what} {'x' * 400}") for what in ("request", "response"))
        common: dict[str, Any] = {"call_id": call_id, "rollout_id": rollout_id, "index": index, "participant": "agent", "role": "agent"}
        yield ledger.new(ModelCallDispatched(**common, request=request.ref, request_digest=digest("r"), upstream="vllm", model="m",
                                             stream_requested=False), request)  # fmt: skip
        yield ledger.new(ModelCalled(**common, status="completed", response=response.ref, attempts=1, latency_s=0.1), response)


def fill(ledger: LedgerHandle, source: Iterator[New], count: int) -> None:
    while count > 0 and (batch := list(islice(source, min(BATCH, count)))):
        ledger.append(batch)
        count -= len(batch)
    ledger.barrier()


def seconds(work: Callable[[], object], *, times: int = 1) -> float:
    """The fastest of some runs of the same work."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)


def report(name: str, ours: list[float], control: list[float]) -> None:
    """Print medians, spreads and the paired ratio."""
    ratios = [a / b for a, b in zip(ours, control, strict=True)]
    shown = [f"{1e3 * statistics.median(v):.3g} [{1e3 * min(v):.3g}, {1e3 * max(v):.3g}] ms" for v in (ours, control)]
    print(f"\n{name}: {shown[0]}, control {shown[1]}, ratio {statistics.median(ratios):.3g} [{min(ratios):.3g}, {max(ratios):.3g}]"
          f" over {len(ours)} interleaved rounds")  # fmt: skip


def in_memory(graph: Graph) -> Callable[[int], int]:
    """The control: a closure level by level over rows of edges that are in memory and sorted already."""
    order = np.argsort(graph.parent_E, kind="stable")
    child = graph.child_E[order]
    first = np.concatenate([[0], np.cumsum(np.bincount(graph.parent_E, minlength=len(graph.ids_N)))])

    def closure(start: int) -> int:
        seen = np.zeros(len(graph.ids_N), np.bool_)
        seen[start] = True
        ahead, found = np.array([start]), 0
        while len(ahead):
            sizes = first[ahead + 1] - first[ahead]
            places = np.repeat(first[ahead] - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes) + np.arange(sizes.sum())
            ahead = np.unique(child[places])
            ahead = ahead[~seen[ahead]]
            seen[ahead] = True
            found += len(ahead)
        return found

    return closure


def test_closure_and_trace(ledger: LedgerHandle) -> None:
    made = Training(5, groups=8, size=8)
    source = events_of(ledger, made)
    began = time.perf_counter()
    fill(ledger, source, EVENTS)
    print(f"\n{EVENTS} events written in {time.perf_counter() - began:.0f} s")
    closures(ledger)
    incremental(ledger, source)
    traces(ledger, made)


def closures(ledger: LedgerHandle) -> None:
    graph = lineage_graph.load(ledger)
    node = node_id(ledger.project, f"verifier-{VERIFIERS[0]}")
    control = in_memory(graph)
    start = graph.number(node)
    assert start is not None
    size = control(start)

    def ours() -> dict[str, int]:
        loaded = lineage_graph.load(ledger)
        number = loaded.number(node)
        assert number is not None
        return loaded.by_noun(loaded.reached(number))

    assert sum(ours().values()) == size
    print(f"closure of an early verifier: {size} of {len(graph.ids_N)} nodes, {len(graph.child_E)} edges")
    pairs = [(seconds(ours), seconds(lambda: control(start))) for _ in range(ROUNDS)]
    report("closure by kind from the database", [a for a, _ in pairs], [b for _, b in pairs])
    pairs = [(seconds(lambda: recall.impact(ledger, f"verifier-{VERIFIERS[0]}")), seconds(lambda: control(start))) for _ in range(ROUNDS)]
    report("direct counts and shares of all versions", [a for a, _ in pairs], [b for _, b in pairs])


def incremental(ledger: LedgerHandle, source: Iterator[New]) -> None:
    added, whole = [], []
    for _ in range(3):
        whole.append(seconds(lambda: lineage_graph.rebuild(ledger)))
        fill(ledger, source, EVENTS // 100)
        added.append(seconds(lambda: lineage_graph.catch_up(ledger)))
    report("taking 1 % new events in, against packing all", added, whole)


def traces(ledger: LedgerHandle, made: Training) -> None:
    rewards = [f"w{number}" for number in range(10, made.rollouts - 200, max(1, made.rollouts // 200))]
    with ledger.connection() as conn, conn.cursor(binary=True) as cursor:
        ids = [row[0] for row in cursor.execute("SELECT id FROM event TABLESAMPLE SYSTEM (5) LIMIT 400").fetchall()]

        def whole() -> None:
            for reward in rewards:
                given = {"node": node_id(ledger.project, f"reward-{reward}")}
                cursor.execute(lineage_read.STATEMENTS["reward"], given, prepare=True).fetchall()

        def look_up() -> None:
            for ident in ids[: len(rewards)]:
                cursor.execute("SELECT * FROM event WHERE id = %s", (ident,), prepare=True).fetchall()

        given = {"node": node_id(ledger.project, f"reward-{rewards[0]}")}
        rows = cursor.execute(lineage_read.STATEMENTS["reward"], given, prepare=True).fetchall()
        assert len(rows) == 5 + 2 * CALLS
        whole(), look_up()
        pairs = [(seconds(whole) / len(rewards), seconds(look_up) / len(rewards)) for _ in range(ROUNDS)]
        report("whole trace with payloads, against a look-up by primary key", [a for a, _ in pairs], [b for _, b in pairs])
        plan = cursor.execute("EXPLAIN (ANALYZE, BUFFERS, COSTS off) " + lineage_read.STATEMENTS["reward"], given).fetchall()
        print("\n".join(str(row[0]) for row in plan) if os.environ.get("TALLY_BENCH_PLAN") else "")
