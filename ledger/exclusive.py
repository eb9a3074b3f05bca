"""Exclusive work: one process at a time holds a name, and the database lets go when that process dies, however it dies."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import psycopg

from ledger.errors import LedgerUnavailable, TallyError
from ledger.ledger import LedgerHandle


@contextmanager
def exclusive(
    ledger: LedgerHandle, name: str, *, wait_s: float = 20.0, all_projects: bool = False, shared: bool = False
) -> Iterator[psycopg.Connection[Any]]:
    """Hold `name` in this ledger and project, or in all of its projects, waiting up to `wait_s` seconds for a dying holder.

    The name is held while the connection that this gives lives: what is written over it is written by the holder. With `shared` it is
    held beside others that share it, and beside nobody else.

    Raises:
        TallyError: another process holds it.
        LedgerUnavailable: the database cannot be reached.
    """
    lock = _lock(ledger, "*" if all_projects else ledger.project, name)
    conn = _connection(ledger, name)
    hold = f"SELECT pg_try_advisory_lock{'_shared' if shared else ''}(%s)"
    with conn:
        deadline = time.monotonic() + wait_s
        while conn.execute(hold, (lock,)).fetchone() != (True,):
            if time.monotonic() > deadline:
                raise TallyError(f"{name} is held by another process; wait for it to end, or stop it")
            time.sleep(0.1)
        yield conn


def unheld(ledger: LedgerHandle, names: Sequence[str]) -> list[str]:
    """Those of the names that nobody holds in this ledger and project at the moment; whoever wants one still has to get it.

    Raises:
        LedgerUnavailable: the database cannot be reached.
    """
    if not names:
        return []
    with _connection(ledger, names[0]) as conn:
        free = [
            name
            for name in names
            if conn.execute("SELECT pg_try_advisory_lock(%s)", (_lock(ledger, ledger.project, name),)).fetchone() == (True,)
        ]
        # A connection that is only closed lets go some moments later.
        conn.execute("SELECT pg_advisory_unlock_all()")
    return free


def _lock(ledger: LedgerHandle, project: str, name: str) -> int:
    return int.from_bytes(sha256(f"{ledger.ledger_id}/{project}/{name}".encode()).digest()[:8], "big", signed=True)


def _connection(ledger: LedgerHandle, name: str) -> psycopg.Connection[Any]:
    try:
        return psycopg.connect(ledger.url, autocommit=True)
    except psycopg.OperationalError as error:
        raise LedgerUnavailable(f"cannot hold {name!r}: {error}") from error
