"""No event is ever missed: four tailing readers beside writers that roll back, are killed or stay open, and a naive reader that misses some."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from ledger.ledger import open_ledger
from tests.conftest import Cluster

pytestmark = pytest.mark.bench
EVENTS = int(os.environ.get("TALLY_BENCH_EVENTS", "20000"))
WRITERS, READERS = 8, 4
REPOSITORY = Path(__file__).parents[2]
WRITER = """
import random, sys, time
from ledger import store
from ledger.ledger import open_ledger
from tests.benchmarks.test_append import one_kilobyte
rng = random.Random(int(sys.argv[2]))
with open_ledger(sys.argv[1], project="bench", actor_id="writer", pool_size=1) as ledger:
    bodies = one_kilobyte(sys.argv[2], 10**9)
    while True:
        size = rng.choice((1, 1, 1, 20))
        began = time.perf_counter()
        if rng.random() < 0.9:
            ledger.append([ledger.new(next(bodies)) for _ in range(size)])
            print(size, time.perf_counter() - began, flush=True)
            continue
        try:
            with ledger.connection() as conn:
                store.append(conn, ledger.ledger_id, "bench", [ledger.new(next(bodies)) for _ in range(size)])
                time.sleep(rng.random() * rng.choice((0.01, 0.01, 0.5)))
                if rng.random() < 0.5:
                    raise InterruptedError
        except InterruptedError:
            continue
"""
READER = """
import hashlib, json, select, sys, time
from datetime import UTC, datetime
from ledger import order
from ledger.ledger import open_ledger
with open_ledger(sys.argv[1], project="bench", actor_id="reader", pool_size=1) as ledger:
    last, digest, lags, until = 0, hashlib.sha256(), [], None
    print("ready", flush=True)

    while until is None or last < until:
        order.step(ledger.pool)
        events = ledger.read(last)
        now = datetime.now(UTC)
        for event in events:
            assert event.position > last
            last = event.position
            digest.update(event.leaf)
            lags.append((now - event.recorded_at).total_seconds())
        if until is None and select.select([sys.stdin], [], [], 0)[0]:
            until = int(sys.stdin.readline())
    lags.sort()
    print(json.dumps({"events": len(lags), "digest": digest.hexdigest(), "p50": lags[len(lags) // 2], "p99": lags[int(len(lags) * 0.99)]}))
"""
NAIVE = """
import sys, select, psycopg
with psycopg.connect(sys.argv[1], autocommit=True) as conn:
    last, seen, until = 0, 0, None
    print("ready", flush=True)
    while until is None or last < until:
        rows = conn.execute("SELECT id FROM event WHERE id > %s ORDER BY id LIMIT 1000", (last,)).fetchall()
        if rows:
            last, seen = rows[-1][0], seen + len(rows)
        if until is None and select.select([sys.stdin], [], [], 0)[0]:
            until = int(sys.stdin.readline())
    print(seen)
"""


def program(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A program of its own on this code base."""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )


def test_no_event_is_missed(disk_cluster: Cluster) -> None:
    """All readers see the same events in the same order, all of them; the naive reader skips some; lag against commit time is printed."""
    url = disk_cluster.migrated_database()
    rng = random.Random(int(os.environ.get("TALLY_SEED", "1")))
    with open_ledger(url, project="bench", actor_id="bench") as ledger, psycopg.connect(url) as foreign:
        ledger.barrier()
        foreign.execute("CREATE TEMPORARY TABLE held (x int)")
        foreign.execute("INSERT INTO held VALUES (1)")
        readers = [program(READER, url) for _ in range(READERS)]
        naive = program(NAIVE, url)
        for process in (*readers, naive):
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        serial = iter(range(10**9))
        writers = [program(WRITER, url, str(next(serial))) for _ in range(WRITERS)]
        ended: list[subprocess.Popen[str]] = []
        began = time.monotonic()
        while _count(ledger.url) < EVENTS:
            time.sleep(1.0)
            victim = rng.randrange(WRITERS)
            writers[victim].send_signal(signal.SIGKILL)
            ended.append(writers[victim])
            writers[victim] = program(WRITER, url, str(next(serial)))
        seconds = time.monotonic() - began
        for process in writers:
            process.kill()
        commits = sorted(float(line.split()[1]) for process in (*ended, *writers) for line in process.communicate()[0].splitlines())
        foreign.rollback()
        last = ledger.barrier()
        with ledger.connection() as conn:
            row = conn.execute("SELECT count(*), max(id) FROM event").fetchone()
        assert row is not None
        total, newest = row
        told = []
        for process in readers:
            told.append(json.loads(process.communicate(f"{last}\n")[0].splitlines()[-1]))
        seen = int(naive.communicate(f"{newest}\n")[0].splitlines()[-1])
    disk_cluster.drop(url)
    assert {(line["events"], line["digest"]) for line in told} == {(total - 1, told[0]["digest"])}
    commit = commits[int(len(commits) * 0.99)]
    lag = max(line["p99"] for line in told)
    print(
        f"\n{total} events in {seconds:.0f} s ({len(ended)} writers killed, others rolled back or left open, a foreign transaction open):"
        f" {READERS} readers skipped 0, all in one order; the naive reader skipped {total - seen}"
        f"\n  visible after p50 {max(line['p50'] for line in told) * 1e3:.1f} ms, p99 {lag * 1e3:.1f} ms; commit p99 {commit * 1e3:.1f} ms;"
        f" ratio {lag / commit:.2f} (goal: <= 5)"
    )
    assert total > seen, "the naive reader missed nothing, so the run proves nothing"


def _count(url: str) -> int:
    with psycopg.connect(url) as conn:
        row = conn.execute("SELECT last_value FROM event_id_seq").fetchone()
    return 0 if row is None else int(row[0])
