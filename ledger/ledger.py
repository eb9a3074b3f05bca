"""A ledger opened for use: connection pool, identity, append and read in one place. Opens database connections."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool, PoolTimeout

from ledger import blobs, order, store, subjects
from ledger.blobs import Pending
from ledger.errors import LedgerUnavailable, RoleError, SchemaMismatch, StatementTimeout, SubjectDestroyed
from ledger.events import EventBody, LedgerCreated
from ledger.ids import Clock, utc_now, uuid7
from ledger.limits import LIMITS, Limits
from ledger.revisions import check_schema
from ledger.secrets import SCANNER, Scanner
from ledger.store import New, Receipt, StagedTokens
from ledger.subjects import KeyedConnection, Subject

Connection = psycopg.Connection[Any]
SUBJECTS_KEPT = 4096
_FIRST_S = 1.0
"""After so long without a connection the server is asked why."""
_REFUSALS = ("does not exist", "authentication failed", "no pg_hba.conf entry", "permission denied")
"""Words of a server that gives no connection however often it is asked."""


@dataclass(frozen=True)
class Guards:
    """What protects a ledger from its writers, and whose text it holds from others.

    Attributes:
        limits: of appends.
        scanner: of secrets.
        kek: key around the subjects' keys; None stores those as they are.
        statement_s: seconds that a statement may take; None for no limit.
    """

    limits: Limits = LIMITS
    scanner: Scanner = SCANNER
    kek: bytes | None = field(default=None, repr=False)
    statement_s: float | None = None


@dataclass(frozen=True)
class Rights:
    """What the database lets this login do: write events of all kinds, of reviews alone, and fold read models."""

    appends: bool
    reviews: bool
    folds: bool


class LedgerHandle:
    """One project of one ledger, over a pool of psycopg connections. Thread-safe.

    Attributes:
        url: the database.
        ledger_id: id from the genesis event.
        project: namespace of streams and keys.
        actor_id: pseudonym that `new` writes as.
        guards: limits, scanner and keys.
        rights: of its login.
    """

    def __init__(
        self,
        url: str,
        pool: "ConnectionPool[Connection]",
        *,
        ledger_id: str,
        project: str,
        actor_id: str,
        clock: Clock,
        guards: Guards = Guards(),
        rights: Rights = Rights(True, True, True),
    ) -> None:
        self.url, self.pool, self.ledger_id, self.project, self.actor_id, self.clock = url, pool, ledger_id, project, actor_id, clock
        self.guards, self.rights = guards, rights
        self._subjects: dict[str, Subject] = {}

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
        raw = blobs.text_bytes(data) if isinstance(data, str) else bytes(data)
        name = self.subject_id if subject_id is None else subject_id
        if self.guards.scanner.check_blob(media, raw):
            # Named after the content, salted, so that a retry of the same event names the same blob.
            name = f"secret:{blobs.commitment(self.subject(self.subject_id).salt, raw)[:32]}"
        return blobs.pending(raw, media=media, subject=self.subject(name), limits=self.guards.limits)

    def subject(self, subject_id: str) -> Subject:
        """Salt and key of a subject, made when first asked for and remembered.

        Raises:
            SubjectDestroyed: it was shredded.
        """
        found = self._subjects.get(subject_id)
        if found is None:
            with self.connection() as conn:
                found = subjects.ensure(conn, subject_id, random_bytes=secrets.token_bytes)
            if len(self._subjects) >= SUBJECTS_KEPT:
                self._subjects.clear()
            self._subjects[subject_id] = found
        return found

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
        """Receipt for events that are durably committed, all or none; see `ledger.store.append`.

        Raises:
            SecretFound: a body holds what looks like a credential.
            SubjectDestroyed: a blob belongs to a subject that was shredded meanwhile.
            RoleError: this login may not append that.
        """
        return self.append_prepared(self.prepare(events, expected=expected))

    def prepare(self, events: Sequence[New], *, expected: Mapping[str, int] | None = None) -> store.Batch:
        """The events ready to be written: in form, within limits, without credentials."""
        batch = store.prepare_all(self.ledger_id, self.project, events, expected, limits=self.guards.limits)
        for item in batch.distinct:
            self.guards.scanner.check_body(item.kind, item.body, item.new.body)
        return batch

    def append_prepared(self, batch: store.Batch) -> Receipt:
        """As `append`, of events that `prepare` has made ready."""
        try:
            return self._append(batch)
        except (psycopg.Error, SubjectDestroyed) as error:
            self.raise_known(error)
            raise

    def raise_known(self, error: psycopg.Error | SubjectDestroyed) -> None:
        """Raise the error of ours that the database meant, if it is one."""
        known = store.known_error(error) if isinstance(error, psycopg.Error) else error
        if isinstance(known, SubjectDestroyed):
            # Shredded meanwhile by another process: its key must not be used again.
            self._subjects.clear()
        if known is not error:
            raise known from error

    def _append(self, batch: store.Batch) -> Receipt:
        reviews_only = self.rights.reviews and not self.rights.appends
        if reviews_only and (not batch.small or batch.large):
            raise RoleError(
                f"a reviewer appends up to {store.SMALL} events with blobs up to {store.INLINE_BLOB_BYTES} bytes at a time;"
                f" seen {len(batch.distinct)} events, {len(batch.large)} larger blobs"
            )
        if not batch.small or batch.large:
            with self.connection() as conn:
                blobs.write(conn, (*batch.large, *(() if batch.small else batch.inline)))
        if batch.small:
            with self._plain_connection() as conn:
                return store.one_statement(conn, self.ledger_id, self.project, batch, reviews_only=reviews_only)
        with self.connection() as conn:
            return store.many_statements(conn, self.ledger_id, self.project, batch)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection in a transaction that commits at the end.

        Raises:
            LedgerUnavailable: the database cannot be reached, or cannot write (disk full, read-only).
            RoleError: the login may not do this.
            StatementTimeout: a statement took longer than the settings allow.
        """
        with self._plain_connection() as conn, conn.transaction():
            yield conn

    @contextmanager
    def _plain_connection(self) -> Iterator[Connection]:
        try:
            with self.pool.connection() as conn:
                yield conn
        except psycopg.errors.InsufficientPrivilege as error:
            raise RoleError(f"this login may not do this: {error.diag.message_primary}; docs/guards.md lists what each role may") from error
        except (PoolTimeout, psycopg.OperationalError) as error:
            if isinstance(error, psycopg.errors.QueryCanceled) and "statement timeout" in str(error):
                raise StatementTimeout(
                    f"a statement took longer than {self.guards.statement_s or 'the role allows'} s; allowed: TALLY_STATEMENT_TIMEOUT_S"
                ) from error
            raise_unavailable(self.url, error)
            raise

    def read(self, since: int = 0, *, kinds: Sequence[str] | None = None, limit: int = 1000) -> list[order.Recorded]:
        """Ordered events above position `since`."""
        return order.read(self.pool, self.project, since, kinds=kinds, limit=limit)

    def read_stream(self, stream: str) -> list[order.Recorded]:
        """All committed events of a stream."""
        return order.read_stream(self.pool, self.ledger_id, self.project, stream)

    def read_streams(self, streams: Sequence[str], *, kinds: Sequence[str] | None = None) -> list[order.Recorded]:
        """The ordered events of the streams, in whichever ledger, by position; of the given kinds or of all."""
        return order.read_streams(self.pool, self.project, streams, kinds=kinds)

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
    guards: Guards = Guards(),
) -> LedgerHandle:
    """The ledger in a migrated database; the first opening writes its genesis event.

    Raises:
        LedgerUnavailable: the database cannot be reached.
        SchemaMismatch: the database is behind or ahead of this release's migrations.
    """

    def keyed(conn: Connection) -> None:
        assert isinstance(conn, KeyedConnection)
        conn.kek = guards.kek
        if guards.statement_s is not None:
            conn.execute("SELECT set_config('statement_timeout', %s, false)", (str(round(guards.statement_s * 1000)),))

    pool: ConnectionPool[Connection] = ConnectionPool(
        url, connection_class=KeyedConnection, configure=keyed, min_size=1, max_size=pool_size, timeout=connect_s, open=False,
        name="tallystick",
        kwargs={"options": f"{_given_options(url)}-c synchronous_commit=on", "application_name": "tallystick", "autocommit": True},
    )  # fmt: skip
    try:
        _reach(pool, url, connect_s)
        with pool.connection() as conn, conn.transaction():
            check_schema(conn)
            rights = _rights(conn)
            ledger_id = _genesis(conn, clock, random_bytes, actor_id)
    except (PoolTimeout, psycopg.OperationalError) as error:
        pool.close()
        raise LedgerUnavailable(f"{_safe(url)}: {str(error).strip() or f'no connection within {connect_s} s'}") from error
    except psycopg.errors.InsufficientPrivilege as error:
        pool.close()
        raise RoleError(f"{_safe(url)}: {error.diag.message_primary}; run `tally roles` as the owner of the tables") from error
    except SchemaMismatch:
        pool.close()
        raise
    return LedgerHandle(url, pool, ledger_id=ledger_id, project=project, actor_id=actor_id, clock=clock, guards=guards, rights=rights)


def _reach(pool: "ConnectionPool[Connection]", url: str, connect_s: float) -> None:
    """Open the pool and wait for its first connection: a server that may be starting is tried again, one that refuses is believed.

    Raises:
        PoolTimeout: there was none within `connect_s`.
        OperationalError: the server says why there will be none.
    """
    pool.open()
    first_s = min(_FIRST_S, connect_s)
    try:
        pool.putconn(pool.getconn(timeout=first_s))
    except PoolTimeout:
        try:
            psycopg.connect(url, connect_timeout=max(1, round(connect_s))).close()
        except psycopg.OperationalError as error:
            if any(said in str(error) for said in _REFUSALS):
                raise
        pool.wait(timeout=connect_s - first_s)


def _given_options(url: str) -> str:
    """The options in a URL, such as the role to act as: what a keyword says would take their place."""
    given = conninfo_to_dict(url).get("options")
    return f"{given} " if given else ""


def _rights(conn: Connection) -> Rights:
    row = conn.execute(
        "SELECT has_table_privilege('event', 'INSERT'), has_function_privilege('append_reviews'::regproc::oid, 'EXECUTE'),"
        " has_table_privilege('projection_cursor', 'UPDATE')"
    ).fetchone()
    assert row is not None
    return Rights(*map(bool, row))


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


def raise_unavailable(url: str, error: psycopg.Error | PoolTimeout) -> None:
    """Raise LedgerUnavailable when `error` means that the database cannot be reached or cannot write."""
    state = getattr(error, "sqlstate", None)
    if state is None or state[:2] in ("08", "53", "57") or state in ("25006", "58030"):
        raise LedgerUnavailable(f"{_safe(url)}: {str(error).strip()}") from error


def _safe(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
