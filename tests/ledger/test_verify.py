"""Verification: an untouched ledger is intact, and every kind of change behind its back is found and placed."""

from collections.abc import Callable

import psycopg

from ledger.ledger import LedgerHandle
from ledger.verify import examine, verify

STREAM = "stream_id = (SELECT stream_id FROM stream_head JOIN node USING (node_id) WHERE name = 'verdict-verdict-a')"
EVENT = f"SELECT id FROM event WHERE {STREAM}"
CHANGES = {
    "body": ("event", "UPDATE event SET body = convert_to(replace(convert_from(body, 'UTF8'), 'passed\":true', 'passed\":false'), 'UTF8')"
             f" WHERE {STREAM}", "leaf does not match"),
    "leaf": ("event", f"UPDATE event SET leaf = sha256(leaf) WHERE {STREAM}", "leaf does not match"),
    "actor": ("event", f"UPDATE event SET actor_id = 'someone' WHERE {STREAM}", "leaf does not match"),
    "time": ("event", f"UPDATE event SET occurred_at = occurred_at - interval '1 microsecond' WHERE {STREAM}", "leaf does not match"),
    "event id": ("event", f"UPDATE event SET event_id = gen_random_uuid() WHERE {STREAM}", "event id does not follow"),
    "deleted event": ("event", f"DELETE FROM event WHERE {STREAM}", "its event is not here"),
    "key": ("event_key", f"DELETE FROM event_key WHERE id = ({EVENT})", "idempotency key is missing"),
    "edge taken away": ("edge", f"DELETE FROM edge WHERE id = ({EVENT}) AND relation = 'judges'", "edges are not what it states"),
    "edge added": ("edge", "INSERT INTO edge SELECT child, id, 99, parent, relation FROM edge WHERE relation = 'judges' LIMIT 1",
                   "edges are not what it states"),
    "order": ("event_order", "DELETE FROM event_order WHERE position = 5", "follows 4"),
    "blob use": ("blob_use", "DELETE FROM blob_use WHERE (blob_no, id) = (SELECT blob_no, id FROM blob_use LIMIT 1)", "blobs it is noted to use"),
    "blob": ("blob_chunk", "UPDATE blob_chunk SET data = data || 'x' WHERE blob_no = (SELECT min(blob_no) FROM blob_chunk)",
             "do not match its commitment"),
    "blob gone": ("blob", "DELETE FROM blob WHERE blob_no = (SELECT min(blob_no) FROM blob)", "one of the two is not here"),
    "head": ("stream_head", f"UPDATE stream_head SET version = 9 WHERE {STREAM}", "the head is at version 9"),
}  # fmt: skip


def test_an_untouched_ledger_is_intact(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(ledger)
    seen: list[tuple[int, int]] = []
    report = verify(ledger, progress=lambda done, total: seen.append((done, total)))
    assert (report.problems, report.intact) == ((), True)
    assert (report.events, report.position, report.token_arrays) == (21, 21, 6)
    assert seen[-1] == (report.events + report.position + report.blobs,) * 2


def test_an_empty_ledger_is_intact(ledger: LedgerHandle) -> None:
    assert (verify(ledger).events, verify(ledger).intact) == (1, True)


def test_every_change_behind_the_ledgers_back_is_found(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(ledger)
    ledger.barrier()
    for change, (_, statement, fault) in CHANGES.items():
        with psycopg.connect(ledger.url) as conn:
            conn.execute("SET LOCAL session_replication_role = replica")
            assert conn.execute(statement).rowcount == 1, change
            problems = examine(conn).problems
            assert any(fault in problem.fault for problem in problems), (change, problems)
            conn.rollback()
    assert verify(ledger).intact


def test_the_earliest_event_that_does_not_fit_comes_first(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(ledger)
    ledger.barrier()
    with psycopg.connect(ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute("UPDATE event SET leaf = sha256(leaf) WHERE kind IN ('ToolCalled', 'RewardDerived')")
    problems = verify(ledger).problems
    assert [problem.subject.partition("(")[2].split()[0] for problem in problems] == ["ToolCalled", "RewardDerived"]
