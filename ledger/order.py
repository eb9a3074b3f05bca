"""Order and reading: one dense sequence of positions that every reader sees alike. Runs the ordering step in the database."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg_pool import ConnectionPool

from ledger.errors import WaitTimeout
from ledger.events import EventBody
from ledger.ids import node_id
from ledger.store import Receipt
from ledger.upcast import decode

Pool = ConnectionPool[Any]

_COLUMNS = (
    "position, ledger_id, project, event_id, stream, version, kind, schema_version, canonicaliser, occurred_at, actor_id,"
    " correlation_id, causation_id, key, body, body_hash, leaf, recorded_at"
)


@dataclass(frozen=True)
class Recorded:
    """An event as stored; `position` is None while it is not ordered yet."""

    position: int | None
    ledger_id: str
    project: str
    event_id: str
    stream: str
    version: int
    kind: str
    schema_version: int
    canonicaliser: str
    occurred_at: datetime
    actor_id: str
    correlation_id: str | None
    causation_id: str | None
    key: str
    body_bytes: bytes
    body_hash: bytes
    leaf: bytes
    recorded_at: datetime

    @property
    def body(self) -> EventBody:
        """The body as its class of this release."""
        return decode(self.kind, self.schema_version, self.body_bytes)


def recorded(row: Any) -> Recorded:
    """The event in a row of `_COLUMNS`."""
    values = [*row[:3], str(row[3]), *row[4:12], None if row[12] is None else str(row[12]), row[13], *map(bytes, row[14:17]), row[17]]
    return Recorded(*values)


def step(pool: Pool, *, wait: bool = False, max_events: int = 10_000) -> tuple[bool, bool]:
    """Whether an ordering step ran here (another process may hold it), and whether more events are left to order."""
    with pool.connection() as conn:
        row = conn.execute("SELECT ran, more FROM order_events(%s, %s)", (max_events, wait)).fetchone()
    return (False, False) if row is None else (bool(row[0]), bool(row[1]))


def barrier(pool: Pool) -> int:
    """The position P up to which everything that was committed before the call is ordered (S6)."""
    more = True
    while more:
        _, more = step(pool, wait=True)
    return high(pool)


def high(pool: Pool) -> int:
    """The highest position so far, 0 in an empty ledger."""
    with pool.connection() as conn:
        row = conn.execute("SELECT position FROM order_step ORDER BY step DESC LIMIT 1").fetchone()
    return 0 if row is None else int(row[0])


def read(pool: Pool, project: str, since: int = 0, *, kinds: Sequence[str] | None = None, limit: int = 1000) -> list[Recorded]:
    """Ordered events with a position above `since`, at most `limit`, of the given kinds or of all."""
    with pool.connection() as conn:
        rows = conn.execute(
            f"SELECT {_COLUMNS} FROM ordered_event WHERE position > %s AND project = %s AND (%s::text[] IS NULL OR kind = ANY (%s))"
            " ORDER BY position LIMIT %s",
            (since, project, kinds, kinds, limit),
        ).fetchall()
    return [recorded(row) for row in rows]


def read_all(pool: Pool, project: str, since: int = 0, *, kinds: Sequence[str] | None = None) -> Iterator[Recorded]:
    """All ordered events above `since` that are ordered when the end is reached, page by page."""
    while page := read(pool, project, since, kinds=kinds):
        yield from page
        since = page[-1].position or since


def read_stream(pool: Pool, ledger_id: str, project: str, stream: str) -> list[Recorded]:
    """All committed events of a stream by version, ordered or not (S4)."""
    with pool.connection() as conn:
        rows = conn.execute(
            f"SELECT {_COLUMNS} FROM recorded_event WHERE node_id = %s AND ledger_id = %s ORDER BY version",
            (node_id(project, stream), ledger_id),
        ).fetchall()
    return [recorded(row) for row in rows]


def wait_ordered(pool: Pool, receipt: Receipt, *, timeout_s: float) -> list[int]:
    """The positions of a receipt's events, helping to order them.

    Raises:
        WaitTimeout: not ordered in time; the events are durable all the same.
    """
    wanted = [UUID(item.event_id) for item in receipt.events]
    deadline = time.monotonic() + timeout_s
    while True:
        step(pool)
        with pool.connection() as conn:
            rows = conn.execute(
                "SELECT k.event_id, o.position FROM event_key AS k JOIN event_order AS o USING (id) WHERE k.event_id = ANY (%s)", (wanted,)
            ).fetchall()
        positions = {row[0]: int(row[1]) for row in rows}
        if len(positions) == len(set(wanted)):
            return [positions[event_id] for event_id in wanted]
        if time.monotonic() > deadline:
            raise WaitTimeout(
                f"{len(set(wanted)) - len(positions)} of {len(set(wanted))} events not ordered within {timeout_s} s; all are durable"
            )
        time.sleep(0.002)
