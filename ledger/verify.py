"""Verification of a ledger: whatever is stored twice, hashed or signed is derived again and compared. Reads the database; orders first."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import psycopg

from ledger import verify_read_models, verify_tokens
from ledger.interchange import held
from ledger.ledger import LedgerHandle
from ledger.lineage_tokens import arrays
from ledger.proof import VerifierKey
from ledger.verify_blobs import BlobPass
from ledger.verify_events import EventPass
from ledger.verify_heads import DATABASE, Head, judge, read_heads
from ledger.verify_report import Fault, Problem, Report
from ledger.verify_tables import TABLE_CHECKS
from ledger.verify_tree import TreePass

__all__ = ["Problem", "Report", "examine", "verify"]

Connection = psycopg.Connection[Any]
Progress = Callable[[int, int], None]
Notes = Sequence[tuple[str, str]]
"""Checkpoint notes, each with the place where it was found."""


def verify(
    ledger: LedgerHandle,
    *,
    outside: Notes = (),
    key: VerifierKey | None = None,
    fast: bool = False,
    progress: Progress = lambda done, total: None,
) -> Report:
    """The report on all projects of a ledger, as of one moment.

    Args:
        ledger: to verify.
        outside: notes that were kept where nobody who can change the database could change them.
        key: the public key that must have signed every checkpoint; None leaves signatures unchecked.
        fast: leave out the content of blobs and tokens.
        progress: called with rows done so far, and how many there are.
    """
    ledger.barrier()
    with ledger.connection() as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        return examine(conn, outside=outside, key=key, fast=fast, progress=progress)


def examine(
    conn: Connection,
    *,
    outside: Notes = (),
    key: VerifierKey | None = None,
    fast: bool = False,
    progress: Progress = lambda done, total: None,
) -> Report:
    """The report on what the transaction of this connection sees; as for `verify`.

    Args:
        conn: in a transaction whose reads all see one moment.
    """
    counts = conn.execute(
        "SELECT (SELECT count(*) FROM event), (SELECT count(*) FROM event_order), (SELECT count(*) FROM blob),"
        " (SELECT max(ledger_id) FROM ledger)"
    ).fetchone()
    events, ordered, stored, ledger_id = (0, 0, 0, "") if counts is None else counts
    total = events + ordered + (0 if fast else stored)
    inside, problems = _inside(conn, key)
    kept, more = read_heads(outside, key)
    heads = [*inside, *kept]
    event_pass = EventPass(conn, str(ledger_id))
    token_arrays = 0
    for done in event_pass.chunks():
        token_arrays += sum(len(arrays(body)) for _, _, body in event_pass.calls)
        progress(done, total)
    position_of = _positions(conn, event_pass.forks)
    forks = {position_of[ident]: fork for ident, fork in event_pass.forks.items() if ident in position_of}
    sizes = [head.head.size for head in heads] + [fork.common_size for fork in forks.values()]
    tree = TreePass(conn, max((head.head.size for head in inside), default=0), sizes)
    for done in tree.chunks():
        progress(events + done, total)
    judged = judge(heads, tree.roots, tree.size, forks)
    blob_pass = BlobPass(conn)
    for done in () if fast else blob_pass.chunks():
        progress(events + ordered + done, total)
    taken = [Fault(None, subject, fault) for subject, fault in held.faults(conn)]
    faults = [*event_pass.faults, *_table_faults(conn), *taken, *blob_pass.faults]
    problems += [*more, *tree.problems, *judged.problems, *_placed(conn, faults), *verify_read_models.check(conn)]
    problems += () if fast else verify_tokens.check(conn)
    problems.sort(key=lambda problem: (problem.position is None, problem.position or 0))
    return Report(
        events, tree.size, stored, blob_pass.shredded, blob_pass.withheld, token_arrays, tree.tiles, len(inside), len(kept), judged.agreed,
        judged.forks, judged.lost, key is not None, ("blobs", "tokens") if fast else (), tuple(problems),
    )  # fmt: skip


def _inside(conn: Connection, key: VerifierKey | None) -> tuple[list[Head], list[Problem]]:
    """The checkpoints in the database, and those rows that say other than their note."""
    rows = conn.execute("SELECT note, origin, size, root FROM checkpoint ORDER BY size, origin").fetchall()
    heads, problems = read_heads([(DATABASE, str(row[0])) for row in rows], key)
    said = {(head.head.origin, head.head.size, head.head.root) for head in heads}
    problems += [
        Problem(
            int(row[2]), f"checkpoint of {row[2]} events", f"its row names {row[1]} and root {bytes(row[3]).hex()}; its note says otherwise"
        )
        for row in rows
        if (str(row[1]), int(row[2]), bytes(row[3])) not in said
    ]
    return heads, problems


def _table_faults(conn: Connection) -> Iterable[Fault]:
    for subject, statement in TABLE_CHECKS:
        for row in conn.execute(statement):
            yield Fault(None if row[0] is None else int(row[0]), f"{subject} {row[1]}", str(row[2]))


def _placed(conn: Connection, faults: Sequence[Fault]) -> list[Problem]:
    position_of = _positions(conn, {fault.id for fault in faults if fault.id is not None})
    return [Problem(None if fault.id is None else position_of.get(fault.id), fault.subject, fault.fault) for fault in faults]


def _positions(conn: Connection, idents: Iterable[int]) -> dict[int, int]:
    """Internal id to position, of those that have one."""
    rows = conn.execute("SELECT id, min(position) FROM event_order WHERE id = ANY (%s) GROUP BY id", (list(idents),)).fetchall()
    return {int(row[0]): int(row[1]) for row in rows}
