"""Verification of read models: each folded again into a table of its own, and compared row by row. Writes temporary tables."""

from collections.abc import Iterator
from typing import Any

import psycopg

from ledger.projections import MODELS, ReadModel, source_digest
from ledger.verify_report import Problem

Connection = psycopg.Connection[Any]
_SHOWN = 20


def check(conn: Connection) -> Iterator[Problem]:
    """Rows that are not what their events fold to, up to the position that the cursor names.

    Args:
        conn: in a transaction; the temporary tables go when it ends.
    """
    cursors = {
        str(name): (int(position), str(digest))
        for name, position, digest in conn.execute("SELECT name, position, source_digest FROM projection_cursor WHERE shown")
    }
    reached = conn.execute("SELECT coalesce(max(position), 0) FROM event_order").fetchone() or (0,)
    for model in MODELS.values():
        position, digest = cursors.get(model.NAME, (0, source_digest(model)))
        if digest != source_digest(model):
            # Another release folded it; the next use of it folds it again.
            continue
        if position > reached[0]:
            yield Problem(None, f"read model {model.NAME}", f"its cursor is at position {position}; the log ends at {reached[0]}")
        try:
            with conn.transaction():
                found = list(_compare(conn, model, position))
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            # A body that is no JSON or lacks a field; the event itself is named by the check of events.
            found = [Problem(None, f"read model {model.NAME}", f"it cannot be folded again: {error.diag.message_primary}")]
        yield from found


def _compare(conn: Connection, model: ReadModel, position: int) -> Iterator[Problem]:
    # A temporary table comes before the real one of the same name, so that the model's own statements fill it.
    schema = (
        conn.execute("SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = %s::regclass", (model.TABLE,)).fetchone() or ("",)
    )[0]
    conn.execute(f"CREATE TEMP TABLE {model.TABLE} (LIKE {schema}.{model.TABLE} INCLUDING ALL) ON COMMIT DROP")
    for statement in model.SQL:
        conn.execute(statement, {"low": 0, "high": position})
    here, fresh = f"{schema}.{model.TABLE}", f"pg_temp.{model.TABLE}"
    for fault, one, other in (("no event folds to it", here, fresh), ("it is missing", fresh, here)):
        rows = conn.execute(
            f"SELECT to_jsonb(r)::text FROM (SELECT * FROM {one} EXCEPT SELECT * FROM {other} LIMIT {_SHOWN}) AS r"
        ).fetchall()
        yield from (Problem(None, f"read model {model.NAME}, row {row[0][:200]}", fault) for row in rows)
    conn.execute(f"DROP TABLE {fresh}")
