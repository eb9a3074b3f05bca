"""The only writer: appends events durably, idempotently and at the expected version, in one transaction. Writes the database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg

from ledger import blobs as blob_store
from ledger import bulk, canonical
from ledger.blobs import Pending
from ledger.errors import IdempotencyConflict, InvalidEvent, RoleError, SubjectDestroyed, TallyError, VersionConflict
from ledger.limits import LIMITS, Limits, check_append
from ledger.prepared import New, Prepared, StagedTokens, children_of, heads_of, prepare, stamp, uuids

__all__ = [
    "Appended",
    "New",
    "Receipt",
    "StagedTokens",
    "append",
    "many_statements",
    "one_statement",
    "prepare_all",
    "stamp",
]

SMALL = 48
"""Up to so many events go in one statement; more are copied in, which costs more round trips and less time an event."""
SMALL_BYTES = 1024 * 1024
INLINE_BLOB_BYTES = 256 * 1024
"""Larger blobs are stored by themselves before the events that name them."""
Connection = psycopg.Connection[Any]
_ERRORS: dict[str, type[TallyError]] = {
    "TY001": VersionConflict, "TY002": IdempotencyConflict, "TY003": InvalidEvent, "TY004": InvalidEvent, "TY005": InvalidEvent,
    "TY006": SubjectDestroyed, "TY007": RoleError,
}  # fmt: skip
_CASTS = (
    "text", "text", "text[]", "bigint[]", "int[]", "text", "int[]", "text[]", "uuid[]", "text[]", "int[]", "timestamptz[]", "text[]",
    "text[]", "uuid[]", "bytea[]", "bytea[]", "bytea[]", "text[]", "bigint[]", "int[]", "bigint[]", "bigint[]", "text[]", "float8[]",
    "int[]", "bytea[]", "bytea[]", "text[]", "bigint[]", "int[]", "bytea[]", "int[]", "text[]", "uuid[]", "int[]", "bytea[]", "bytea[]",
    "bytea[]",
)  # fmt: skip
_ARGUMENTS: LiteralString = ", ".join(f"%s::{cast}" for cast in _CASTS)
_APPEND: LiteralString = f"SELECT event_version, is_new FROM append_events({_ARGUMENTS})"
_APPEND_REVIEWS: LiteralString = f"SELECT event_version, is_new FROM append_reviews({_ARGUMENTS})"


@dataclass(frozen=True)
class Appended:
    """One acknowledged event; `created` is False when the key was taken by the same content and the first event stands."""

    event_id: str
    stream: str
    version: int
    created: bool


@dataclass(frozen=True)
class Receipt:
    """What `append` acknowledges, in the order given. It holds no position: that comes with ordering."""

    events: tuple[Appended, ...]


@dataclass(frozen=True)
class Batch:
    """Events prepared together: those given, the distinct ones among them, and the blobs that come with them by size."""

    given: tuple[Prepared, ...]
    distinct: tuple[Prepared, ...]
    expected: Mapping[str, int]
    inline: tuple[Pending, ...]
    large: tuple[Pending, ...]

    @property
    def small(self) -> bool:
        """Whether it fits in one statement."""
        if len(self.distinct) > SMALL:
            return False
        tokens = [item.new.tokens for item in self.distinct if item.new.tokens is not None]
        arrays = [data for t in tokens for data in (t.prompt, t.sampled, t.logprobs) if data is not None]
        return sum(map(len, arrays)) + sum(len(item.body) for item in self.distinct) + sum(len(b.data) for b in self.inline) <= SMALL_BYTES


def append(conn: Connection, ledger_id: str, project: str, events: Sequence[New], expected: Mapping[str, int] | None = None) -> Receipt:
    """Receipt for events that are durable when the caller's transaction commits; all of them or none.

    Args:
        conn: a connection inside a transaction that has written nothing but blobs.
        ledger_id: this ledger's id.
        project: namespace of streams and keys.
        events: in the order in which their streams shall hold them.
        expected: stream to the version that it must be at before this append; 0 for a stream that must not exist.
    Raises:
        InvalidEvent, CanonicalError: an event does not fit its schema or limits; nothing is written.
        IdempotencyConflict: a key is taken by other content.
        VersionConflict: a stream is not at its expected version.
    """
    batch = prepare_all(ledger_id, project, events, expected)
    blob_store.write(conn, batch.large)
    if batch.small:
        return one_statement(conn, ledger_id, project, batch)
    blob_store.write(conn, batch.inline)
    return many_statements(conn, ledger_id, project, batch)


def prepare_all(
    ledger_id: str, project: str, events: Sequence[New], expected: Mapping[str, int] | None = None, *, limits: Limits = LIMITS
) -> Batch:
    """The events ready to be written, the same key twice made one.

    Raises:
        InvalidEvent, CanonicalError: an event does not fit its schema, or it or all of them together do not fit the limits.
        IdempotencyConflict: two of them have one key and other content.
    """
    given = tuple(prepare(ledger_id, project, new, limits) for new in events)
    distinct: dict[str, Prepared] = {}
    for item in given:
        first = distinct.setdefault(item.event_id, item)
        if first is not item and first.content != item.content:
            raise IdempotencyConflict(
                f"key {item.key!r} in stream {item.stream!r} is given twice, by {first.kind} and by {item.kind} with other content:"
                " the same key needs the same content"
            )
    streams = {item.stream for item in given}
    for stream in expected or {}:
        if stream not in streams:
            raise InvalidEvent(f"expected version given for stream {stream!r}, to which nothing is appended")
    blobs = {blob.ref.blob_id: blob for new in events for blob in new.blobs}
    ordered = [blobs[blob_id] for blob_id in sorted(blobs)]
    check_append(given, ordered, limits)
    return Batch(
        given, tuple(distinct.values()), expected or {}, tuple(blob for blob in ordered if len(blob.data) <= INLINE_BLOB_BYTES),
        tuple(blob for blob in ordered if len(blob.data) > INLINE_BLOB_BYTES),
    )  # fmt: skip


def one_statement(conn: Connection, ledger_id: str, project: str, batch: Batch, *, reviews_only: bool = False) -> Receipt:
    """Receipt for a small batch, written by one statement: outside a transaction it is durable when this returns.

    Args:
        conn, ledger_id, project, batch: what to write and where.
        reviews_only: by the function that takes events of reviews alone, which a role without the right to write the log may call.
    """
    try:
        rows = conn.execute(_APPEND_REVIEWS if reviews_only else _APPEND, arguments(ledger_id, project, batch)).fetchall()
    except psycopg.Error as error:
        raise known_error(error) from error
    return _receipt(batch, {item.event_id: (int(row[0]), bool(row[1])) for item, row in zip(batch.distinct, rows, strict=True)})


def many_statements(conn: Connection, ledger_id: str, project: str, batch: Batch) -> Receipt:
    """Receipt for a batch of any size whose blobs are stored, copied in within the caller's transaction."""
    try:
        return _receipt(batch, bulk.write(conn, ledger_id, project, batch.distinct, batch.expected))
    except psycopg.Error as error:
        raise known_error(error) from error


def known_error(error: psycopg.Error) -> Exception:
    """The error of ours that the database raised, else the error itself."""
    kind = _ERRORS.get(error.sqlstate or "")
    return error if kind is None else kind(error.diag.message_primary or str(error))


def arguments(ledger_id: str, project: str, batch: Batch) -> tuple[Any, ...]:
    """What `append_events` takes, in its order."""
    items = batch.distinct
    heads = heads_of(items)
    place = {stream: index for index, stream in enumerate(heads, 1)}
    children = children_of(project, items)
    edges = [(index, edge) for index, item in enumerate(items, 1) for edge in item.edges]
    uses = [(index, blob_id) for index, item in enumerate(items, 1) for blob_id in item.uses]
    tokens = [(index, item.new.tokens) for index, item in enumerate(items, 1) if item.new.tokens is not None]
    inline = batch.inline
    return (
        ledger_id, project, list(heads), list(heads.values()), [batch.expected.get(stream) for stream in heads], canonical.NAME,
        [place[item.stream] for item in items], [item.key for item in items], uuids([item.event_id for item in items]),
        [item.kind for item in items], [item.schema_version for item in items], [item.occurred_at for item in items],
        [item.new.actor_id for item in items], [item.new.correlation_id for item in items],
        uuids([item.new.causation_id for item in items]), [item.body for item in items],
        [item.leaf_head for item in items], [item.leaf_tail for item in items],
        list(children), list(children.values()),
        [index for index, _ in edges], [edge.child for _, edge in edges], [edge.parent for _, edge in edges],
        [edge.relation for _, edge in edges], [edge.weight for _, edge in edges],
        [index for index, _ in uses], [blob_id for _, blob_id in uses],
        [bytes.fromhex(blob.ref.blob_id) for blob in inline], [blob.subject_id for blob in inline], [blob.ref.size for blob in inline],
        [blob.codec for blob in inline], [blob.data for blob in inline],
        [index for index, _ in tokens], [token.subject_id for _, token in tokens], uuids([token.parent for _, token in tokens]),
        [token.shared for _, token in tokens], [token.prompt for _, token in tokens], [token.sampled for _, token in tokens],
        [token.logprobs for _, token in tokens],
    )  # fmt: skip


def _receipt(batch: Batch, versions: Mapping[str, tuple[int, bool]]) -> Receipt:
    acknowledged: list[Appended] = []
    seen: set[str] = set()
    for item in batch.given:
        version, created = versions[item.event_id]
        acknowledged.append(Appended(item.event_id, item.stream, version, created and item.event_id not in seen))
        seen.add(item.event_id)
    return Receipt(tuple(acknowledged))
