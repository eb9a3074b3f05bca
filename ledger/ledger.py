"""A ledger opened for use: connection pool, identity, append and read in one place. Opens database connections."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from ledger import blobs, order, store
from ledger.blobs import Pending
from ledger.errors import LedgerUnavailable, SchemaMismatch
from ledger.events import EventBody, LedgerCreated
from ledger.ids import Clock, utc_now, uuid7
from ledger.migrate import check_schema
from ledger.store import New, Receipt, StagedTokens
from ledger.token_codec import TokenSubject

Connection = psycopg.Connection[Any]


class LedgerHandle:
    """One project of one ledger, over a pool of psycopg connections. Thread-safe.

    Attributes:
        url: the database.
        ledger_id: id from the genesis event.
        project: namespace of streams and keys.
        actor_id: pseudonym that `new` writes as.
    """

    def __init__(self, url: str, pool: "ConnectionPool[Connection]", *, ledger_id: str, project: str, actor_id: str, clock: Clock) -> None:
        self.url, self.pool, self.ledger_id, self.project, self.actor_id, self.clock = url, pool, ledger_id, project, actor_id, clock
        self._subjects: dict[str, TokenSubject] = {}

    def __enter__(self) -> "LedgerHandle":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the pool."""
        self.pool.close()

    @property
    def subject_id(self) -> str:
        """Subject of the text and tokens that this project captures when no other is named."""
        return f"project:{self.project}"

    def pending(self, data: bytes | str, *, media: str = "text/plain", subject_id: str | None = None) -> Pending:
        """A blob ready to be appended with the event that names it; foreign text by default belongs to the project's subject."""
        subject = self.subject(self.subject_id if subject_id is None else subject_id)
        return blobs.pending(data, media=media, subject_id=subject.subject_id, salt=subject.salt or b"")

    def subject(self, subject_id: str) -> TokenSubject:
        """A subject with its salt, made when first asked for and remembered."""
        if subject_id not in self._subjects:
            with self.connection() as conn:
                salt = blobs.subject_salt(conn, subject_id, random_bytes=secrets.token_bytes)
            self._subjects[subject_id] = TokenSubject(subject_id, salt)
        return self._subjects[subject_id]

    def pending_json(self, value: Any, *, subject_id: str | None = None) -> Pending:
        """A blob of a JSON value in canonical form."""
        return self.pending(blobs.json_bytes(value), media="application/json", subject_id=subject_id)

    def new(
        self,
        body: EventBody,
        *pending: Pending,
        correlation_id: str | None = None,
        causation_id: str | None = None,
        actor_id: str | None = None,
        tokens: StagedTokens | None = None,
    ) -> New:
        """An event to append, stamped with this handle's clock and actor."""
        return New(body, self.clock(), actor_id or self.actor_id, correlation_id, causation_id, tuple(pending), tokens)

    def append(self, events: Sequence[New], *, expected: Mapping[str, int] | None = None) -> Receipt:
        """Receipt for events that are durably committed, all or none; see `ledger.store.append`."""
        batch = store.prepare_all(self.ledger_id, self.project, events, expected)
        if not batch.small or batch.large:
            with self.connection() as conn:
                blobs.write(conn, (*batch.large, *(() if batch.small else batch.inline)))
        if batch.small:
            with self._plain_connection() as conn:
                return store.one_statement(conn, self.ledger_id, self.project, batch)
        with self.connection() as conn:
            return store.many_statements(conn, self.ledger_id, self.project, batch)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection in a transaction that commits at the end.

        Raises:
            LedgerUnavailable: the database cannot be reached, or cannot write (disk full, read-only).
        """
        with self._plain_connection() as conn, conn.transaction():
            yield conn

    @contextmanager
    def _plain_connection(self) -> Iterator[Connection]:
        try:
            with self.pool.connection() as conn:
                yield conn
        except (PoolTimeout, psycopg.OperationalError) as error:
            if not _unavailable(error):
                raise
            raise LedgerUnavailable(f"{_safe(self.url)}: {str(error).strip()}") from error

    def read(self, since: int = 0, *, kinds: Sequence[str] | None = None, limit: int = 1000) -> list[order.Recorded]:
        """Ordered events above position `since`."""
        return order.read(self.pool, self.project, since, kinds=kinds, limit=limit)

    def read_stream(self, stream: str) -> list[order.Recorded]:
        """All committed events of a stream."""
        return order.read_stream(self.pool, self.ledger_id, self.project, stream)

    def wait_ordered(self, receipt: Receipt, *, timeout_s: float = 10.0) -> list[int]:
        """Positions of a receipt's events."""
        return order.wait_ordered(self.pool, receipt, timeout_s=timeout_s)

    def barrier(self) -> int:
        """Position up to which everything committed before the call is ordered."""
        return order.barrier(self.pool)

    def blob(self, blob_id: str) -> bytes:
        """Bytes of a blob, checked against its commitment."""
        with self.connection() as conn:
            return blobs.read(conn, blob_id)


def open_ledger(
    url: str,
    *,
    project: str,
    actor_id: str,
    clock: Clock = utc_now,
    random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    pool_size: int = 8,
    connect_s: float = 20.0,
) -> LedgerHandle:
    """The ledger in a migrated database; the first opening writes its genesis event.

    Raises:
        LedgerUnavailable: the database cannot be reached.
        SchemaMismatch: the database is behind or ahead of this release's migrations.
    """
    pool: ConnectionPool[Connection] = ConnectionPool(
        url, min_size=1, max_size=pool_size, timeout=connect_s, open=False, name="tallystick",
        kwargs={"options": "-c synchronous_commit=on", "application_name": "tallystick", "autocommit": True},
    )  # fmt: skip
    try:
        pool.open(wait=True, timeout=connect_s)
        with pool.connection() as conn, conn.transaction():
            check_schema(conn)
            ledger_id = _genesis(conn, clock, random_bytes, actor_id)
    except (PoolTimeout, psycopg.OperationalError) as error:
        pool.close()
        raise LedgerUnavailable(f"{_safe(url)}: {str(error).strip() or f'no connection within {connect_s} s'}") from error
    except SchemaMismatch:
        pool.close()
        raise
    return LedgerHandle(url, pool, ledger_id=ledger_id, project=project, actor_id=actor_id, clock=clock)


def _genesis(conn: Connection, clock: Clock, random_bytes: Callable[[int], bytes], actor_id: str) -> str:
    row = conn.execute("SELECT ledger_id FROM ledger").fetchone()
    if row is not None:
        return str(row[0])
    conn.execute("SELECT pg_advisory_xact_lock(74616, 2)")
    row = conn.execute("SELECT ledger_id FROM ledger").fetchone()
    if row is not None:
        return str(row[0])
    ledger_id = uuid7(random_bytes(10))
    conn.execute("INSERT INTO ledger (ledger_id) VALUES (%s)", (ledger_id,))
    body = LedgerCreated(ledger_id=ledger_id, software="tallystick")
    store.append(conn, ledger_id, "ledger", [New(body, clock(), actor_id)])
    return ledger_id


def _unavailable(error: psycopg.Error | PoolTimeout) -> bool:
    state = getattr(error, "sqlstate", None)
    return state is None or state[:2] in ("08", "53", "57") or state in ("25006", "58030")


def _safe(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
