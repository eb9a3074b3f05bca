"""Bulk append: rows packed in PostgreSQL's binary COPY format and copied in, in the caller's transaction. Writes the database."""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import psycopg

from ledger import canonical
from ledger.arrays import Bigints, Texts, Uuids, micros, uuid_bytes
from ledger.errors import IdempotencyConflict, InvalidEvent, VersionConflict
from ledger.prepared import Prepared, children_of, heads_of
from ledger.proof import leaf_of_parts

Connection = psycopg.Connection[Any]
Versions = dict[str, tuple[int, bool]]
"""Event id to its version and whether it is new."""

PIECE_BYTES = 128 * 1024
_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_END = struct.pack("!h", -1)
_NULL = struct.pack("!i", -1)
_EVENT = (
    "COPY event (id, stream_id, version, event_id, kind, schema_version, canonicaliser, occurred_at, actor_id, correlation_id,"
    " causation_id, key, body, leaf) FROM STDIN (FORMAT binary)"
)
_KEYS = "COPY event_key (event_id, id) FROM STDIN (FORMAT binary)"
_EDGES = "COPY edge (child, id, n, parent, relation, weight) FROM STDIN (FORMAT binary)"
_TOKENS = "COPY token_live (event_id, stream_id, subject_id, parent, shared, prompt, sampled, logprobs) FROM STDIN (FORMAT binary)"
_EVENT_HEAD = struct.Struct("!h iq iq ii i16s")
_KEY = struct.Struct("!h i16s iq")
_EDGE = struct.Struct("!h iq iq ih iq")
_USE = struct.Struct("!h iq iq")
_INT = struct.Struct("!ii")
_BIG = struct.Struct("!iq")
_DOUBLE = struct.Struct("!id")


def write(conn: Connection, ledger_id: str, project: str, items: Sequence[Prepared], expected: Mapping[str, int]) -> Versions:
    """Versions of distinct events that are written when the caller's transaction commits.

    Raises:
        IdempotencyConflict, VersionConflict, InvalidEvent: as for `ledger.store.append`.
    """
    heads, children = heads_of(items), children_of(project, items)
    row = conn.execute(
        "SELECT stream_ids, versions, taken, fresh_ids FROM begin_bulk(%s, %s, %s, %s, %s, %s, %s)",
        (
            ledger_id, project, Texts(heads), Bigints(heads.values()), Texts(children), Bigints(children.values()),
            Uuids(item.event_id for item in items),
        ),
    ).fetchone()  # fmt: skip
    assert row is not None
    streams = dict(zip(heads, row[0], strict=True))
    versions: dict[str, int] = dict(zip(heads, row[1], strict=True))
    done = _known(conn, items, {str(taken) for taken in row[2]})
    fresh = [item for item in items if item.event_id not in done]
    if not fresh:
        return done
    for stream, version in expected.items():
        if versions[stream] != version:
            raise VersionConflict(f"stream {stream!r} is at version {versions[stream]}; expected {version}")
    placed: list[tuple[Prepared, int, int]] = []
    for item, ident in zip(fresh, row[3], strict=True):
        versions[item.stream] += 1
        placed.append((item, ident, versions[item.stream]))
        done[item.event_id] = (versions[item.stream], True)
    copy(conn, _EVENT, (_event_row(item, ident, streams[item.stream], version) for item, ident, version in placed))
    copy(conn, _KEYS, (_KEY.pack(2, 16, uuid_bytes(item.event_id), 8, ident) for item, ident, _ in placed))
    copy(conn, _EDGES, _edge_rows(placed))
    _write_uses(conn, placed)
    _write_tokens(conn, [(item, streams[item.stream]) for item in fresh if item.new.tokens is not None])
    changed = {streams[item.stream]: versions[item.stream] for item in fresh}
    conn.execute(
        "UPDATE stream_head AS h SET version = u.version FROM unnest(%s::bigint[], %s::int[]) AS u (stream_id, version)"
        " WHERE h.stream_id = u.stream_id",
        (list(changed), list(changed.values())),
    )
    return done


def copy(conn: Connection, statement: str, rows: Iterable[bytes]) -> None:
    """Copy rows in binary format; each begins with its number of columns."""
    with conn.cursor() as cursor, cursor.copy(statement) as stream:
        pieces, size = [_SIGNATURE], 0
        for row in rows:
            pieces.append(row)
            size += len(row)
            if size >= PIECE_BYTES:
                stream.write(b"".join(pieces))
                pieces, size = [], 0
        pieces.append(_END)
        stream.write(b"".join(pieces))


def _known(conn: Connection, items: Sequence[Prepared], taken: set[str]) -> Versions:
    if not taken:
        return {}
    rows = conn.execute(
        "SELECT e.event_id, e.version, e.kind, e.schema_version, e.body FROM event_key AS k JOIN event AS e USING (id)"
        " WHERE k.event_id = ANY (%s)",
        ([UUID(event_id) for event_id in taken],),
    ).fetchall()
    known = {str(row[0]): row for row in rows}
    for item in items:
        row = known.get(item.event_id)
        if row is not None and (row[2], row[3], bytes(row[4])) != item.content:
            raise IdempotencyConflict(
                f"key {item.key!r} in stream {item.stream!r} is taken by {row[2]}; seen {item.kind}: the same key needs the same content"
            )
    return {event_id: (int(row[1]), False) for event_id, row in known.items()}


def _event_row(item: Prepared, ident: int, stream_id: int, version: int) -> bytes:
    new = item.new
    leaf = leaf_of_parts(item.leaf_head, item.leaf_tail, version)
    cause = _NULL if new.causation_id is None else b"\0\0\0\x10" + uuid_bytes(new.causation_id)
    return b"".join(
        (
            _EVENT_HEAD.pack(14, 8, ident, 8, stream_id, 4, version, 16, uuid_bytes(item.event_id)), _text(item.kind),
            _INT.pack(4, item.schema_version), _text(canonical.NAME), _BIG.pack(8, micros(item.occurred_at)), _text(new.actor_id),
            _text(new.correlation_id), cause, _text(item.key), _bytes(item.body), b"\0\0\0\x20", leaf,
        )
    )  # fmt: skip


def _edge_rows(placed: Sequence[tuple[Prepared, int, int]]) -> Iterator[bytes]:
    for item, ident, _ in placed:
        for n, edge in enumerate(item.edges):
            weight = _NULL if edge.weight is None else _DOUBLE.pack(8, edge.weight)
            yield _EDGE.pack(6, 8, edge.child, 8, ident, 2, n, 8, edge.parent) + _text(edge.relation) + weight


def _write_uses(conn: Connection, placed: Sequence[tuple[Prepared, int, int]]) -> None:
    wanted = {blob_id for item, _, _ in placed for blob_id in item.uses}
    if not wanted:
        return
    rows = conn.execute("SELECT blob_id, blob_no FROM blob WHERE blob_id = ANY (%s)", (list(wanted),)).fetchall()
    number = {bytes(row[0]): int(row[1]) for row in rows}
    missing = wanted - number.keys()
    if missing:
        raise InvalidEvent(f"blob {min(missing).hex()} is named by an event but is not stored; store it in or before the same append")
    copy(
        conn, "COPY blob_use (blob_no, id) FROM STDIN (FORMAT binary)",
        (_USE.pack(2, 8, number[blob_id], 8, ident) for item, ident, _ in placed for blob_id in item.uses),
    )  # fmt: skip


def _write_tokens(conn: Connection, staged: Sequence[tuple[Prepared, int]]) -> None:
    if not staged:
        return
    rows = []
    for item, stream_id in staged:
        token = item.new.tokens
        assert token is not None
        parent = _NULL if token.parent is None else b"\0\0\0\x10" + uuid_bytes(token.parent)
        rows.append(
            b"".join(
                (
                    struct.pack("!h i16s iq", 8, 16, uuid_bytes(item.event_id), 8, stream_id), _text(token.subject_id), parent,
                    _INT.pack(4, token.shared), _bytes(token.prompt), _bytes(token.sampled), _bytes(token.logprobs),
                )
            )
        )  # fmt: skip
    copy(conn, _TOKENS, rows)


def _text(value: str | None) -> bytes:
    return _NULL if value is None else _bytes(value.encode())


def _bytes(data: bytes | None) -> bytes:
    return _NULL if data is None else len(data).to_bytes(4, "big") + data
