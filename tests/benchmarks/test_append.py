"""How fast events are appended: long runs against the same COPY and against a bare table, and many small writers with and without order."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from ledger import bulk, store
from ledger.append_many import append_many
from ledger.events import RewardDerived
from ledger.ledger import LedgerHandle, open_ledger
from tests.benchmarks.rounds import interleaved, report
from tests.conftest import Cluster

pytestmark = pytest.mark.bench
EVENTS = int(os.environ.get("TALLY_BENCH_EVENTS", "20000"))
SECONDS = float(os.environ.get("TALLY_BENCH_SECONDS", "4"))
EACH = 1000
REPOSITORY = Path(__file__).parents[2]
_tags = count()
WRITER = """
import sys, time
from tests.benchmarks.test_append import one_kilobyte
from ledger.ledger import open_ledger
with open_ledger(sys.argv[1], project="bench", actor_id="writer", pool_size=1) as ledger:
    events = (ledger.new(body) for body in one_kilobyte(sys.argv[2], 10**9))
    ledger.append([next(events)])
    print("ready", flush=True)
    sys.stdin.readline()
    latencies, end = [], time.perf_counter() + float(sys.argv[3])
    while (began := time.perf_counter()) < end:
        ledger.append([next(events)])
        latencies.append(time.perf_counter() - began)
    print(len(latencies), sorted(latencies)[int(len(latencies) * 0.99)] if latencies else 0, flush=True)
"""
SEQUENCER = """
import sys, time
from ledger import order
from ledger.ledger import open_ledger
with open_ledger(sys.argv[1], project="bench", actor_id="sequencer", pool_size=1) as ledger:
    print("ready", flush=True)
    while True:
        order.step(ledger.pool)
        time.sleep(0.002)
"""


def one_kilobyte(tag: str, number: int) -> Iterator[RewardDerived]:
    """Rewards of about 1 KB, each with two edges, in streams of their own."""
    for n in range(number):
        yield RewardDerived(
            reward_id=f"{tag}-{n}", rollout_id=f"r{n % 500}", rule="all_conditions", rule_id="0" * 64, verdict_ids=[f"v{n}"],
            value=n / 7, reason="x" * 420, terms={f"term_{k}": k / 3 for k in range(12)},
        )  # fmt: skip


def test_long_runs(disk_cluster: Cluster) -> None:
    """1,000 events a transaction, everything on, against the same rows copied into the same tables and into a bare one."""
    url = disk_cluster.migrated_database()
    with open_ledger(url, project="bench", actor_id="bench") as ledger, psycopg.connect(url, autocommit=True) as conn:
        conn.execute("CREATE TABLE bare (LIKE event)")

        def ours() -> float:
            events = [ledger.new(body) for body in one_kilobyte(f"o{next(_tags)}", EVENTS)]
            began = time.perf_counter()
            for _ in append_many(ledger, events, events_each=EACH):
                pass
            return EVENTS / (time.perf_counter() - began)

        def ordered() -> float:
            events = [ledger.new(body) for body in one_kilobyte(f"d{next(_tags)}", EVENTS)]
            began = time.perf_counter()
            for _ in append_many(ledger, events, events_each=EACH):
                pass
            ledger.barrier()
            return EVENTS / (time.perf_counter() - began)

        def same_copy() -> float:
            return _copied(conn, ledger, bare=False)

        def bare_copy() -> float:
            return _copied(conn, ledger, bare=True)

        arms = {"same COPY, same tables": same_copy, "bare table": bare_copy, "append_many": ours, "append_many, ordered": ordered}
        rates = interleaved(arms)
    ratios = report(f"Long runs, {EACH} events a transaction", rates, "same COPY, same tables", "events/s")
    bare = report("The same", rates, "bare table", "events/s")
    disk_cluster.drop(url)
    print(f"goals: >= 0.75 of the same COPY (here {ratios['append_many']:.2f}), >= 0.40 of the bare table (here {bare['append_many']:.2f})")


def _copied(conn: psycopg.Connection[tuple[object, ...]], ledger: LedgerHandle, *, bare: bool) -> float:
    """The rate at which rows packed beforehand are copied in, nodes and heads too."""
    events = [ledger.new(body) for body in one_kilobyte(f"c{next(_tags)}", EVENTS)]
    chunks: list[list[tuple[bytes, list[bytes]]]] = []
    for at in range(0, EVENTS, EACH):
        batch = store.prepare_all(ledger.ledger_id, ledger.project, events[at : at + EACH])
        first = conn.execute("SELECT array_agg(nextval('event_id_seq')), array_agg(nextval('stream_head_stream_id_seq'))"
                             " FROM generate_series(1, %s)", (EACH,)).fetchone()  # fmt: skip
        assert first is not None
        places = zip(batch.distinct, first[0], first[1], strict=True)  # type: ignore[call-overload]
        placed = tuple(bulk.Placed(item, ident, stream, 1) for item, ident, stream in places)
        copies = [(statement, list(rows)) for statement, rows in bulk.Plan({}, placed, {}).copies({})]
        if bare:
            copies = [(copies[0][0].replace("COPY event ", "COPY bare ", 1), copies[0][1])]
        else:
            copies = [*_heads(ledger, placed), *copies]
        chunks.append([(statement, list(bulk.pieces(rows))) for statement, rows in copies])
    if bare:
        # A bare row still needs the column that the event's table fills by default.
        conn.execute("ALTER TABLE bare ALTER COLUMN recorded_at SET DEFAULT clock_timestamp()")
    began = time.perf_counter()
    for chunk in chunks:
        with conn.transaction():
            for statement, data in chunk:
                with conn.cursor() as cursor, cursor.copy(statement.encode()) as stream:
                    for piece in data:
                        stream.write(piece)
    return EVENTS / (time.perf_counter() - began)


def _heads(ledger: LedgerHandle, placed: tuple[bulk.Placed, ...]) -> list[tuple[str, list[bytes]]]:
    import struct

    def text(value: str) -> bytes:
        return struct.pack("!i", len(value.encode())) + value.encode()

    nodes = [struct.pack("!hiq", 3, 8, new.item.node) + text(ledger.project) + text(new.item.stream) for new in placed]
    heads = [
        struct.pack("!hiqiq", 4, 8, new.stream_id, 8, new.item.node) + text(ledger.ledger_id) + struct.pack("!ii", 4, 1) for new in placed
    ]
    return [
        ("COPY node (node_id, project, name) FROM STDIN (FORMAT binary)", nodes),
        ("COPY stream_head (stream_id, node_id, ledger_id, version) FROM STDIN (FORMAT binary)", heads),
    ]


def _program(code: str, *arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", code, *arguments]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def write_together(url: str, writers: int, *, ordered: bool) -> tuple[float, float]:
    """Acknowledged events a second of so many writers with one event a transaction, and their p99 in ms; in programs of their own."""
    tag = f"w{next(_tags)}-{os.getpid()}"
    programs = [_program(WRITER, url, f"{tag}-{n}", str(SECONDS)) for n in range(writers)]
    sequencer = _program(SEQUENCER, url) if ordered else None
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("go\n")
        program.stdin.flush()
    lines = [program.communicate()[0].split() for program in programs]
    if sequencer is not None:
        sequencer.kill()
        sequencer.communicate()
    return sum(int(line[0]) for line in lines) / SECONDS, max(float(line[1]) for line in lines) * 1e3


def test_small_writers(disk_cluster: Cluster) -> None:
    """8 writers, one event a transaction: with the ordering step running, and the same inserts unordered."""
    url = disk_cluster.migrated_database()
    rates = interleaved(
        {
            "unordered, 8 writers": lambda: write_together(url, 8, ordered=False)[0],
            "ordered, 8 writers": lambda: write_together(url, 8, ordered=True)[0],
            "ordered, 1 writer": lambda: write_together(url, 1, ordered=True)[0],
        }
    )
    ratios = report("One event a transaction", rates, "unordered, 8 writers", "events/s")
    disk_cluster.drop(url)
    print(f"goal: >= 0.95 of unordered inserts (here {ratios['ordered, 8 writers']:.2f})")
