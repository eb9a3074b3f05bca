"""The promise: whatever a superuser changes behind the ledger's back is found from an outside checkpoint and located; nothing else is said."""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger import seal_files
from ledger.ledger import LedgerHandle, open_ledger
from ledger.projections import catch_up
from ledger.proof import VerifierKey
from ledger.seal import default_origin, sealer
from ledger.seal_files import SealFiles
from ledger.token_packing import pack_rollout
from ledger.verify import Report, examine, verify
from tests.ledger.conftest import History
from tests.ledger.tampering import CHANGES, READ_MODELS, any_position, leaf_again, located, other_body, tiles_again

ROLLOUTS = 26
UNSEALED = 2


@dataclass(frozen=True)
class Log:
    """A log of a few hundred events, sealed several times; the last rollouts came after the last outside checkpoint."""

    ledger: LedgerHandle
    outside: tuple[tuple[str, str], ...]
    key: VerifierKey

    def examined(self, conn: psycopg.Connection[Any]) -> Report:
        return examine(conn, outside=self.outside, key=self.key)


def write_rollout(history: History, number: int) -> None:
    """A rollout of its own, judged twice and rewarded."""
    rollout = history.start(f"rollout-{number}")
    call = history.call(rollout, ids=(5, 6, number + 7))
    history.tool(rollout, call)
    last = history.call(rollout, 1, answered=number % 5 != 4)
    history.end(rollout, [call, last])
    history.verdict(rollout, f"verdict-{number}", number % 3 != 0)
    history.verdict(rollout, f"second-{number}", None if number % 4 == 0 else True, own=False)
    history.reward(rollout, f"reward-{number}", f"verdict-{number}", 1.0)
    if number % 3 == 0:
        history.review(rollout, f"review-{number}", "passed", [f"verdict-{number}", f"second-{number}"])


@pytest.fixture(scope="module")
def log(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """Read only: every change is rolled back."""
    url, folder = cluster.migrated_database(), tmp_path_factory.mktemp("seal")
    files = SealFiles(folder / "seal.key", folder / "checkpoints.txt")
    with open_ledger(url, project="test", actor_id="tester") as ledger:
        history = History(ledger)
        history.task()
        with sealer(ledger, files) as own:
            for number in range(ROLLOUTS):
                write_rollout(history, number)
                if number % 2:
                    assert pack_rollout(ledger, f"rollout-{number}").packs == 1
                if number % 5 == 4:
                    own.seal()
            own.seal()
        for number in range(UNSEALED):
            write_rollout(history, ROLLOUTS + number)
        ledger.barrier()
        catch_up(ledger)
        outside = tuple(("the witness", note) for note in seal_files.read_notes(folder / "checkpoints.txt"))
        yield Log(ledger, outside, seal_files.named(seal_files.read_key(files.key), default_origin(ledger.ledger_id)))
    cluster.drop(url)


def missed(log: Log, name: str, seed: int) -> str | None:
    """None when a change is found and located; else what was said of it."""
    with psycopg.connect(log.ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        positions = CHANGES[name](conn, random.Random(f"{name} {seed}"))
        report = log.examined(conn)
        conn.rollback()
    if located(report.problems, positions):
        return None
    return f"{name}, seed {seed}, at {positions[:5]}: {[(p.position, p.subject, p.fault) for p in report.problems[:4]]}"


def test_a_sealed_log_raises_no_alarm(log: Log) -> None:
    report = verify(log.ledger, outside=log.outside, key=log.key)
    assert report.problems == ()
    assert report.tiles >= 1
    assert report.outside == report.checkpoints >= 4
    assert 0 < report.outside_size < report.position
    assert set(READ_MODELS) <= {row[0] for row in _query(log, "SELECT relname FROM pg_class")}


def test_changes_of_every_kind_are_found_and_located(log: Log) -> None:
    seeds = range(2)
    print(f"{len(CHANGES) * len(seeds)} changes: {len(CHANGES)} kinds, seeds {seeds}")
    assert [said for name in CHANGES for seed in seeds if (said := missed(log, name, seed))] == []


@pytest.mark.slow
def test_a_thousand_random_changes_are_found_and_located(log: Log) -> None:
    wanted, base = int(os.environ.get("TALLY_CHANGES", "1000")), random.randrange(10**6)
    print(f"{wanted} changes, seeds {base} to {base + wanted - 1}")
    names = list(CHANGES)
    assert [said for n in range(wanted) if (said := missed(log, names[n % len(names)], base + n))] == []


def test_what_came_after_the_last_outside_checkpoint_is_found_unless_it_is_rewritten_consistently(log: Log) -> None:
    with psycopg.connect(log.ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        size, position = conn.execute("SELECT (SELECT max(size) FROM checkpoint), max(position) FROM event_order").fetchone() or (0, 0)
        ident = conn.execute("SELECT id FROM event_order WHERE position = %s", (position,)).fetchone()[0]  # type: ignore[index]
        assert position > size
        conn.execute("UPDATE event SET actor_id = 'someone' WHERE id = %s", (ident,))
        assert located(log.examined(conn).problems, [position])
        leaf_again(conn, ident)
        assert log.examined(conn).intact
        conn.rollback()


def test_without_an_outside_checkpoint_a_consistent_rewrite_that_takes_the_checkpoints_away_is_not_seen(log: Log) -> None:
    with psycopg.connect(log.ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        position, ident = any_position(conn, random.Random(1))
        conn.execute("UPDATE event SET actor_id = 'someone' WHERE id = %s", (ident,))
        leaf_again(conn, ident)
        conn.execute("DELETE FROM checkpoint")
        conn.execute("DELETE FROM tree_tile")
        assert examine(conn, key=log.key).intact
        assert located(log.examined(conn).problems, [position])
        conn.rollback()


def test_the_smallest_interval_between_outside_checkpoints_is_named(log: Log) -> None:
    with psycopg.connect(log.ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        sizes = [row[0] for row in conn.execute("SELECT size FROM checkpoint ORDER BY size")]
        ident = conn.execute("SELECT id FROM event_order WHERE position = %s", (sizes[1] + 1,)).fetchone()[0]  # type: ignore[index]
        other_body(conn, random.Random(3), ident)
        leaf_again(conn, ident)
        tiles_again(conn)
        subjects = [(problem.position, problem.subject) for problem in log.examined(conn).problems]
        assert (sizes[1] + 1, f"events {sizes[1] + 1} to {sizes[2]}") in subjects
        conn.rollback()


def test_two_outside_checkpoints_of_one_size_with_different_roots_are_a_split_view(log: Log, tmp_path: Path) -> None:
    from ledger import checkpoint
    from ledger.proof import Checkpoint

    key = seal_files.make_key(tmp_path / "other.key")
    origin = default_origin(log.ledger.ledger_id)
    notes = [
        ("one", checkpoint.sign(Checkpoint(origin, 5, bytes(32)), key)),
        ("two", checkpoint.sign(Checkpoint(origin, 5, bytes(31) + b"x"), key)),
    ]
    with log.ledger.connection() as conn:
        problems = examine(conn, outside=notes, key=None).problems
    assert any(problem.subject == "split view" for problem in problems)


@pytest.mark.slow
def test_a_large_clean_log_raises_no_alarm(cluster: Any, tmp_path: Path) -> None:
    wanted = int(os.environ.get("TALLY_CLEAN_EVENTS", "20000"))
    url = cluster.migrated_database()
    files = SealFiles(tmp_path / "seal.key", tmp_path / "checkpoints.txt")
    with open_ledger(url, project="test", actor_id="tester") as ledger, sealer(ledger, files) as own:
        history = GatheringHistory(ledger)
        history.task()
        number = 0
        while history.written < wanted:
            write_rollout(history, number)
            number += 1
            if number % 100 == 0:
                history.flush()
                own.seal()
        history.flush()
        own.seal()
        catch_up(ledger)
        assert files.witness is not None
        outside = [("the witness", note) for note in seal_files.read_notes(files.witness)]
        report = verify(ledger, outside=outside, key=seal_files.named(own.key, own.origin))
    assert report.problems == ()
    assert report.outside_size == report.position >= wanted
    cluster.drop(url)


class GatheringHistory(History):
    """A history that is appended a few hundred events at a time."""

    def __init__(self, ledger: LedgerHandle) -> None:
        super().__init__(ledger)
        self.written, self._held = 0, list[Any]()

    def write(self, body: Any, tokens: Any = None) -> None:
        self._held.append(self.ledger.new(body, *self.blobs, tokens=tokens))
        self.blobs, self.written = [], self.written + 1
        if len(self._held) >= 500:
            self.flush()

    def flush(self) -> None:
        if self._held:
            self.ledger.append(self._held)
        self._held = []


def _query(log: Log, statement: str) -> list[Any]:
    with log.ledger.connection() as conn:
        return conn.execute(statement).fetchall()  # type: ignore[call-overload]


def test_a_body_that_is_no_json_ends_no_audit(log: Log) -> None:
    with psycopg.connect(log.ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        row = conn.execute(
            "SELECT o.position, o.id FROM event_order AS o JOIN event AS e USING (id) WHERE e.kind = 'RolloutEnded'"
        ).fetchone()
        assert row is not None
        conn.execute("UPDATE event SET body = '{' WHERE id = %s", (row[1],))
        report = log.examined(conn)
        assert located(report.problems, [row[0]])
        assert any("cannot be folded again" in problem.fault for problem in report.problems)
        conn.rollback()
