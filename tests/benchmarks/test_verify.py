"""A full audit against reading the same rows with COPY TO, interleaved; and how many events a seal takes in a second."""

import time
from pathlib import Path

import pytest

from ledger.ledger import LedgerHandle
from ledger.seal import sealer
from ledger.seal_files import SealFiles
from ledger.verify import examine
from ledger.verify_events import EventPass
from tests.benchmarks.rounds import report
from tests.ledger.test_tamper import GatheringHistory, write_rollout

pytestmark = pytest.mark.bench
ROUNDS, EVENTS = 5, 10_000


def test_an_audit_against_copying_out(ledger: LedgerHandle, tmp_path: Path) -> None:
    history, number = GatheringHistory(ledger), 0
    history.task()
    while history.written < EVENTS:
        write_rollout(history, number)
        number += 1
    history.flush()
    ledger.barrier()
    with sealer(ledger, SealFiles(tmp_path / "seal.key", tmp_path / "checkpoints.txt")) as own:
        began = time.perf_counter()
        head = own.seal()
        assert head is not None
        print(f"\nseal: {head.size / (time.perf_counter() - began):.3g} events/s, {head.size} in one checkpoint")
    copied, passed, audited = list[float](), list[float](), list[float]()
    with ledger.connection() as conn:
        for _ in range(ROUNDS):
            began = time.perf_counter()
            with conn.cursor() as cursor, cursor.copy("COPY (SELECT * FROM event) TO STDOUT (FORMAT binary)") as stream:
                for _row in stream:
                    pass
            copied.append(head.size / (time.perf_counter() - began))
            began = time.perf_counter()
            events = EventPass(conn, ledger.ledger_id)
            assert sum(1 for _ in events.chunks()) > 0
            assert events.faults == []
            passed.append(head.size / (time.perf_counter() - began))
            began = time.perf_counter()
            assert examine(conn).intact
            audited.append(head.size / (time.perf_counter() - began))
    report("Auditing", {"COPY TO": copied, "events verified": passed, "whole audit": audited}, "COPY TO", "events/s")
