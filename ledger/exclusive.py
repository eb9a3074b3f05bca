"""Exclusive work: one process at a time holds a name, and the database lets go when that process dies, however it dies."""

import time
from collections.abc import Iterator
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
    lock = int.from_bytes(
        sha256(f"{ledger.ledger_id}/{'*' if all_projects else ledger.project}/{name}".encode()).digest()[:8], "big", signed=True
    )
    try:
        conn = psycopg.connect(ledger.url, autocommit=True)
    except psycopg.OperationalError as error:
        raise LedgerUnavailable(f"cannot hold {name!r}: {error}") from error
    hold = f"SELECT pg_try_advisory_lock{'_shared' if shared else ''}(%s)"
    with conn:
        deadline = time.monotonic() + wait_s
        while conn.execute(hold, (lock,)).fetchone() != (True,):
            if time.monotonic() > deadline:
                raise TallyError(f"{name} is held by another process; wait for it to end, or stop it")
            time.sleep(0.1)
        yield conn
