"""The only writer: appends events durably, idempotently and at the expected version, in one transaction. Writes the database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

import psycopg

from ledger import blobs as blob_store
from ledger import canonical, ids
from ledger.errors import IdempotencyConflict, InvalidEvent, VersionConflict
from ledger.events import EventBody
from ledger.proof import LeafFields, leaf_hash

MAX_BODY_BYTES = 64 * 1024
MAX_NAME_LENGTH = 300
Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class New:
    """An event to append.

    Attributes:
        body: what happened.
        occurred_at: the producer's clock, timezone-aware.
        actor_id: pseudonym of who did it.
        correlation_id: what it belongs to, such as a run.
        causation_id: event id of what caused it.
        blobs: the blobs that the body names and that may not be stored yet.
    """

    body: EventBody
    occurred_at: datetime
    actor_id: str
    correlation_id: str | None = None
    causation_id: str | None = None
    blobs: tuple[blob_store.Pending, ...] = ()


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
class _Prepared:
    new: New
    stream: str
    key: str
    event_id: str
    body: bytes
    body_hash: bytes

    @property
    def content(self) -> tuple[str, int, bytes]:
        return self.new.body.kind, self.new.body.schema_version, self.body_hash


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
    prepared = [_prepare(ledger_id, project, new) for new in events]
    blob_store.write(conn, [blob for item in prepared for blob in item.new.blobs])
    versions = _lock_heads(conn, ledger_id, project, sorted({item.stream for item in prepared}))
    taken = _taken_keys(conn, ledger_id, project, prepared)
    fresh = [item for item in prepared if (item.stream, item.key) not in taken]
    if fresh:
        _check_expected(versions, expected or {})
    acknowledged: list[Appended] = []
    rows: list[tuple[_Prepared, int]] = []
    for item in prepared:
        known = taken.get((item.stream, item.key))
        if known is None:
            versions[item.stream] += 1
            taken[item.stream, item.key] = (*item.content, item.event_id, versions[item.stream])
            rows.append((item, versions[item.stream]))
            acknowledged.append(Appended(item.event_id, item.stream, versions[item.stream], True))
            continue
        if known[:3] != item.content:
            raise IdempotencyConflict(
                f"key {item.key!r} in stream {item.stream!r} is taken by {known[0]} with body {known[2].hex()[:12]}…;"
                f" seen {item.content[0]} with body {item.body_hash.hex()[:12]}…: the same key needs the same content"
            )
        acknowledged.append(Appended(known[3], item.stream, known[4], False))
    if rows:
        _insert(conn, ledger_id, project, rows)
    return Receipt(tuple(acknowledged))


def _prepare(ledger_id: str, project: str, new: New) -> _Prepared:
    if new.occurred_at.tzinfo is None:
        raise InvalidEvent(f"{new.body.kind}: occurred_at {new.occurred_at.isoformat()} has no time zone; allowed: aware times")
    stream, key = new.body.stream(), new.body.key()
    for what, value in (("stream", stream), ("key", key), ("actor_id", new.actor_id), ("correlation_id", new.correlation_id or "-")):
        if not 0 < len(value) <= MAX_NAME_LENGTH or not value.isprintable():
            raise InvalidEvent(
                f"{new.body.kind}: {what} {value[:60]!r} has {len(value)} characters; allowed: 1 to {MAX_NAME_LENGTH}, printable"
            )
    body = canonical.canonical_bytes(new.body.model_dump(mode="json"))
    if len(body) > MAX_BODY_BYTES:
        raise InvalidEvent(f"{new.body.kind}: body of {len(body)} bytes; allowed: up to {MAX_BODY_BYTES}; put large content in a blob")
    return _Prepared(new, stream, key, ids.event_id(ledger_id, project, stream, key), body, sha256(body).digest())


def _lock_heads(conn: Connection, ledger_id: str, project: str, streams: list[str]) -> dict[str, int]:
    rows = conn.execute(
        "INSERT INTO stream_head AS h (ledger_id, project, stream, version)"
        " SELECT %s, %s, s, 0 FROM unnest(%s::text[]) WITH ORDINALITY AS u (s, n) ORDER BY n"
        " ON CONFLICT (ledger_id, project, stream) DO UPDATE SET version = h.version RETURNING stream, version",
        (ledger_id, project, streams),
    ).fetchall()
    return {row[0]: row[1] for row in rows}


def _taken_keys(
    conn: Connection, ledger_id: str, project: str, prepared: Sequence[_Prepared]
) -> dict[tuple[str, str], tuple[str, int, bytes, str, int]]:
    rows = conn.execute(
        "SELECT k.stream, k.key, k.kind, k.schema_version, k.body_hash, k.event_id, k.version"
        " FROM unnest(%s::text[], %s::text[]) AS u (stream, key)"
        " JOIN event_key AS k ON k.ledger_id = %s AND k.project = %s AND k.stream = u.stream AND k.key = u.key",
        ([item.stream for item in prepared], [item.key for item in prepared], ledger_id, project),
    ).fetchall()
    return {(row[0], row[1]): (row[2], row[3], bytes(row[4]), str(row[5]), row[6]) for row in rows}


def _check_expected(versions: Mapping[str, int], expected: Mapping[str, int]) -> None:
    for stream, version in expected.items():
        if stream not in versions:
            raise InvalidEvent(f"expected version given for stream {stream!r}, to which nothing is appended")
        if versions[stream] != version:
            raise VersionConflict(f"stream {stream!r} is at version {versions[stream]}; expected {version}")


def _insert(conn: Connection, ledger_id: str, project: str, rows: Sequence[tuple[_Prepared, int]]) -> None:
    with conn.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO event (ledger_id, project, event_id, stream, version, kind, schema_version, canonicaliser, occurred_at, actor_id,"
            " correlation_id, causation_id, key, body, body_hash, leaf) VALUES (%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s)",
            [_event_row(ledger_id, project, item, version) for item, version in rows],
        )
        cursor.executemany(
            "INSERT INTO event_key (ledger_id, project, stream, key, event_id, version, kind, schema_version, body_hash)"
            " VALUES (%s,%s,%s,%s,%s,%s,%s,%s,%s)",
            [(ledger_id, project, item.stream, item.key, UUID(item.event_id), version, *item.content) for item, version in rows],
        )
        edges = [(project, *edge, UUID(item.event_id)) for item, _ in rows for edge in dict.fromkeys(item.new.body.edges())]
        if edges:
            cursor.executemany(
                "INSERT INTO edge (project, child, parent, relation, event_id) VALUES (%s,%s,%s,%s,%s) ON CONFLICT DO NOTHING", edges
            )
        uses = sorted({(bytes.fromhex(ref.blob_id), UUID(item.event_id)) for item, _ in rows for ref in item.new.body.blobs()})
        if uses:
            _check_blobs_stored(conn, uses)
            cursor.executemany("INSERT INTO blob_use (blob_id, event_id) VALUES (%s,%s)", uses)
        heads = {item.stream: version for item, version in rows}
        cursor.executemany(
            "UPDATE stream_head SET version = %s WHERE ledger_id = %s AND project = %s AND stream = %s",
            [(version, ledger_id, project, stream) for stream, version in heads.items()],
        )


def _check_blobs_stored(conn: Connection, uses: Sequence[tuple[bytes, UUID]]) -> None:
    wanted = list({blob_id for blob_id, _ in uses})
    row = conn.execute(
        "SELECT w FROM unnest(%s::bytea[]) AS u (w) WHERE NOT EXISTS (SELECT FROM blob WHERE blob_id = w) LIMIT 1", (wanted,)
    ).fetchone()
    if row is not None:
        raise InvalidEvent(f"blob {bytes(row[0]).hex()} is named by an event but is not stored; store it in or before the same append")


def _event_row(ledger_id: str, project: str, item: _Prepared, version: int) -> tuple[Any, ...]:
    new = item.new
    occurred = new.occurred_at.astimezone(UTC)
    fields = LeafFields(
        ledger_id=ledger_id, event_id=item.event_id, project=project, stream=item.stream, version=version, kind=new.body.kind,
        schema_version=new.body.schema_version, canonicaliser=canonical.NAME, occurred_at=stamp(occurred), actor_id=new.actor_id,
        correlation_id=new.correlation_id, causation_id=new.causation_id, key=item.key, body_hash=item.body_hash,
    )  # fmt: skip
    return (
        ledger_id, project, UUID(item.event_id), item.stream, version, fields.kind, fields.schema_version, canonical.NAME, occurred,
        new.actor_id, new.correlation_id, None if new.causation_id is None else UUID(new.causation_id), item.key, item.body,
        item.body_hash, leaf_hash(fields),
    )  # fmt: skip


def stamp(moment: datetime) -> str:
    """ISO 8601 UTC with microseconds and `Z`, as the leaf holds it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
