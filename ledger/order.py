"""Order and reading: one dense sequence of positions that every reader sees alike. Runs the ordering step in the database."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg_pool import ConnectionPool

from ledger.arrays import Bigints, Uuids
from ledger.errors import WaitTimeout
from ledger.events import EventBody
from ledger.ids import node_id
from ledger.store import Receipt
from ledger.upcast import decode

Pool = ConnectionPool[Any]
Connection = psycopg.Connection[Any]
Query = tuple[bytes, tuple[Any, ...]]

STEP = "SELECT ran, more FROM order_events(%s, %s)"
STEP_EVENTS = 10_000
HIGH = "SELECT position FROM order_step ORDER BY step DESC LIMIT 1"
POSITIONS = "SELECT k.event_id, o.position FROM event_key AS k JOIN event_order AS o USING (id) WHERE k.event_id = ANY (%s)"
_COLUMNS = (
    "position, ledger_id, project, event_id, stream, version, kind, schema_version, canonicaliser, occurred_at, actor_id,"
    " correlation_id, causation_id, key, body, body_hash, leaf, recorded_at"
)
_READ = (
    f"SELECT {_COLUMNS} FROM ordered_event WHERE position > %s AND position <= %s AND project = %s"
    " AND kind = ANY (coalesce(%s::text[], ARRAY[kind])) ORDER BY position LIMIT %s"
).encode()
_READ_STREAMS = (
    f"SELECT {_COLUMNS} FROM ordered_event WHERE stream_id = ANY (ARRAY(SELECT stream_id FROM stream_head WHERE node_id = ANY (%s)))"
    " AND kind = ANY (coalesce(%s::text[], ARRAY[kind])) ORDER BY position"
).encode()
_READ_STREAM = (
    f"SELECT {_COLUMNS} FROM recorded_event WHERE stream_id ="
    " (SELECT stream_id FROM stream_head WHERE node_id = %s ORDER BY ledger_id <> %s, stream_id LIMIT 1) ORDER BY version"
).encode()


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


def step(pool: Pool, *, wait: bool = False, max_events: int = STEP_EVENTS) -> tuple[bool, bool]:
    """Whether an ordering step ran here (another process may hold it), and whether more events are left to order."""
    with pool.connection() as conn:
        row = conn.execute(STEP, (max_events, wait)).fetchone()
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
        return high_in(conn)


def high_in(conn: Connection) -> int:
    """As `high`, on a connection of the caller's."""
    row = conn.execute(HIGH).fetchone()
    return 0 if row is None else int(row[0])


def read(
    pool: Pool, project: str, since: int = 0, *, kinds: Sequence[str] | None = None, limit: int = 1000, until: int | None = None
) -> list[Recorded]:
    """Ordered events with a position in (since, until], at most `limit`, of the given kinds or of all."""
    with pool.connection() as conn:
        return [recorded(row) for row in conn.execute(*read_query(project, since, kinds=kinds, limit=limit, until=until))]


def read_query(project: str, since: int, *, kinds: Sequence[str] | None = None, limit: int = 1000, until: int | None = None) -> Query:
    """The statement behind `read`; `recorded` reads its rows."""
    given = (since, 2**62 if until is None else until, project, None if kinds is None else list(kinds), limit)
    return _READ, given


def stream_query(ledger_id: str, node: int) -> Query:
    """The statement behind `read_stream`; `recorded` reads its rows."""
    return _READ_STREAM, (node, ledger_id)


def read_all(pool: Pool, project: str, since: int = 0, *, kinds: Sequence[str] | None = None) -> Iterator[Recorded]:
    """All ordered events above `since` that are ordered when the end is reached, page by page."""
    while page := read(pool, project, since, kinds=kinds):
        yield from page
        since = page[-1].position or since


def read_stream(pool: Pool, ledger_id: str, project: str, stream: str) -> list[Recorded]:
    """All committed events of a stream by version, ordered or not (S4): of the ledger's own, else of another ledger taken over here."""
    with pool.connection() as conn:
        return [recorded(row) for row in conn.execute(*stream_query(ledger_id, node_id(project, stream)))]


def read_streams(pool: Pool, project: str, streams: Sequence[str], *, kinds: Sequence[str] | None = None) -> list[Recorded]:
    """The ordered events of the streams, in whichever ledger, by position; of the given kinds or of all."""
    if not streams:
        return []
    with pool.connection() as conn:
        given = (Bigints(node_id(project, stream) for stream in streams), None if kinds is None else list(kinds))
        return [recorded(row) for row in conn.execute(_READ_STREAMS, given)]


def wait_ordered(pool: Pool, receipt: Receipt, *, timeout_s: float) -> list[int]:
    """The positions of a receipt's events, helping to order them.

    Raises:
        WaitTimeout: not ordered in time; the events are durable all the same.
    """
    wanted = [item.event_id for item in receipt.events]
    deadline = time.monotonic() + timeout_s
    while True:
        step(pool)
        with pool.connection() as conn:
            rows = conn.execute(POSITIONS, (Uuids(set(wanted)),)).fetchall()
        positions = {str(row[0]): int(row[1]) for row in rows}
        if len(positions) == len(set(wanted)):
            return [positions[event_id] for event_id in wanted]
        if time.monotonic() > deadline:
            raise WaitTimeout(not_ordered(len(set(wanted)) - len(positions), timeout_s))
        time.sleep(0.002)


def not_ordered(count: int, timeout_s: float) -> str:
    """What a wait that times out says of `count` events."""
    return f"{count} events not ordered within {timeout_s} s; all are durable"
