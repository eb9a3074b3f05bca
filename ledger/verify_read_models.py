"""Verification of read models: each folded again into a table of its own, and compared row by row. Writes temporary tables."""

from collections.abc import Iterator
from typing import Any

import psycopg

from ledger.projections import MODELS
from ledger.projections.generations import Generation, found
from ledger.projections.read_model import fold_statement
from ledger.verify_report import Problem

Connection = psycopg.Connection[Any]
_SHOWN = 20


def check(conn: Connection) -> Iterator[Problem]:
    """Rows that are not what their events fold to, up to the position that the cursor names.

    A generation that another release's source has folded is passed over: the next use of it folds it again.

    Args:
        conn: in a transaction; the temporary tables go when it ends.
    """
    reached = conn.execute("SELECT coalesce(max(position), 0) FROM event_order").fetchone() or (0,)
    for generation in found(conn, MODELS.values()):
        if not (generation.shown and generation.current):
            continue
        subject = f"read model {generation.model.NAME}"
        if generation.position > reached[0]:
            yield Problem(None, subject, f"its cursor is at position {generation.position}; the log ends at {reached[0]}")
        try:
            with conn.transaction():
                problems = list(_compare(conn, generation, subject))
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            # A body that is no JSON or lacks a field; the event itself is named by the check of events.
            problems = [Problem(None, subject, f"it cannot be folded again: {error.diag.message_primary}")]
        yield from problems


def _compare(conn: Connection, generation: Generation, subject: str) -> Iterator[Problem]:
    fresh = f"verified_{generation.model.NAME}"
    conn.execute(f"CREATE TEMP TABLE {fresh} (LIKE {generation.table} INCLUDING ALL) ON COMMIT DROP")
    conn.execute(fold_statement({fresh: generation.model}), {"low": 0, "high": generation.position}, prepare=False)
    for fault, one, other in (("no event folds to it", generation.table, fresh), ("it is missing", fresh, generation.table)):
        rows = conn.execute(
            f"SELECT to_jsonb(r)::text FROM (SELECT * FROM {one} EXCEPT SELECT * FROM {other} LIMIT {_SHOWN}) AS r"
        ).fetchall()
        yield from (Problem(None, f"{subject}, row {row[0][:200]}", fault) for row in rows)
    conn.execute(f"DROP TABLE {fresh}")
