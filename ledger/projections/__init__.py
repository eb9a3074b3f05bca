"""Read models folded from the ordered log, one file each; rows and cursor commit together. Writes the read models and their cursors."""

import hashlib
import time
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import psycopg

from ledger import order
from ledger.errors import UnknownId, WaitTimeout
from ledger.ledger import LedgerHandle
from ledger.projections import bundles, calls, groups, rewards, rollouts, verdicts
from ledger.projections.read_model import ReadModel, Row, Rows, folded

__all__ = ["MODELS", "ReadModel", "Row", "Rows", "catch_up", "folded", "positions", "rebuild", "source_digest", "wait_projected"]

_MODULES: tuple[ModuleType, ...] = (bundles, groups, rollouts, calls, verdicts, rewards)
MODELS: dict[str, ReadModel] = {model.NAME: model for model in (cast(ReadModel, module) for module in _MODULES)}
BATCH = 5000
_SOURCES = {cast(ReadModel, module).NAME: Path(str(module.__file__)) for module in _MODULES}


def catch_up(ledger: LedgerHandle, name: str | None = None, *, batch: int = BATCH) -> dict[str, int]:
    """Name to position of one read model or of all, each folded up to the highest position at the time it was looked at.

    A read model whose source has changed since it was folded is folded again from the start; readers see the old rows until that is done.

    Args:
        ledger: where to fold; all of its projects are.
        name: of the read model; None for all.
        batch: positions folded in one transaction.
    Raises:
        UnknownId: no read model of that name.
    """
    return {model.NAME: _catch_up(ledger, model, batch) for model in _chosen(name)}


def rebuild(ledger: LedgerHandle, name: str | None = None, *, batch: int = BATCH) -> dict[str, int]:
    """Name to position of one read model or of all, folded again from the start in one transaction each.

    Raises:
        UnknownId: no read model of that name.
    """
    return {model.NAME: _rebuild(ledger, model, batch) for model in _chosen(name)}


def wait_projected(ledger: LedgerHandle, name: str, position: int, timeout_s: float = 10.0) -> int:
    """The position, at least `position`, that the read model has been folded up to; helps to order and to fold.

    Raises:
        UnknownId: no read model of that name.
        WaitTimeout: not there in time; it says nothing about what was written.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        order.step(ledger.pool)
        reached = catch_up(ledger, name)[name]
        if reached >= position:
            return reached
        if time.monotonic() > deadline:
            raise WaitTimeout(f"read model {name!r} is at position {reached} after {timeout_s} s; wanted {position}")
        time.sleep(0.01)


def positions(ledger: LedgerHandle) -> dict[str, int]:
    """Name to position of every read model, 0 where it was never folded."""
    with ledger.connection() as conn:
        rows = conn.execute("SELECT name, position FROM projection_cursor").fetchall()
    known = {str(name): int(position) for name, position in rows}
    return {name: known.get(name, 0) for name in MODELS}


def source_digest(model: ReadModel) -> str:
    """Hex SHA-256 over the file and the SQL of a read model: what the cursor keeps to notice a change."""
    source = _SOURCES[model.NAME].read_bytes()
    return hashlib.sha256(b"\x00".join([source, *(statement.encode() for statement in model.SQL)])).hexdigest()


def _chosen(name: str | None) -> list[ReadModel]:
    if name is None:
        return list(MODELS.values())
    if name not in MODELS:
        raise UnknownId(f"no read model {name!r}; there are {', '.join(MODELS)}")
    return [MODELS[name]]


def _catch_up(ledger: LedgerHandle, model: ReadModel, batch: int) -> int:
    goal = order.high(ledger.pool)
    with ledger.connection() as conn:
        at = _locked_cursor(conn, model)
        if at is not None:
            at = _advance(conn, model, at, min(at + batch, goal))
    if at is None:
        return _rebuild(ledger, model, batch)
    while at < goal:
        with ledger.connection() as conn:
            here = _locked_cursor(conn, model)
            at = goal if here is None else _advance(conn, model, here, min(here + batch, goal))
    return at


def _rebuild(ledger: LedgerHandle, model: ReadModel, batch: int) -> int:
    goal = order.high(ledger.pool)
    with ledger.connection() as conn:
        at = _locked_cursor(conn, model)
        conn.execute(f"DELETE FROM {model.TABLE}")
        conn.execute("UPDATE projection_cursor SET position = 0, source_digest = %s WHERE name = %s", (source_digest(model), model.NAME))
        goal, at = max(goal, at or 0), 0
        while at < goal:
            at = _advance(conn, model, at, min(at + batch, goal))
    return goal


def _locked_cursor(conn: psycopg.Connection[Any], model: ReadModel) -> int | None:
    """Position of the cursor, locked until the transaction ends; None when another source folded it."""
    digest = source_digest(model)
    conn.execute(
        "INSERT INTO projection_cursor (name, source_digest, position, shown) SELECT %s, %s, 0, true"
        " WHERE NOT EXISTS (SELECT FROM projection_cursor WHERE name = %s)",
        (model.NAME, digest, model.NAME),
    )
    row = conn.execute("SELECT position, source_digest FROM projection_cursor WHERE name = %s FOR UPDATE", (model.NAME,)).fetchone()
    return None if row is None or row[1] != digest else int(row[0])


def _advance(conn: psycopg.Connection[Any], model: ReadModel, low: int, high: int) -> int:
    if high <= low:
        return low
    for statement in model.SQL:
        conn.execute(statement, {"low": low, "high": high})
    conn.execute("UPDATE projection_cursor SET position = %s WHERE name = %s", (high, model.NAME))
    return high
