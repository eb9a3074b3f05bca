"""Bulk append: the rows of a batch in PostgreSQL's binary COPY format, and the copying of them. Writes the database."""

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from ledger import canonical
from ledger.arrays import Bigints, Byteas, Ints, Texts, Uuids, micros, uuid_bytes
from ledger.errors import IdempotencyConflict, InvalidEvent, VersionConflict
from ledger.prepared import Prepared, children_of, heads_of
from ledger.proof import leaf_of_parts

Connection = psycopg.Connection[Any]
Versions = dict[str, tuple[int, bool]]
"""Event id to its version and whether it is new."""

PIECE_BYTES = 128 * 1024
_KNOWN = (
    "SELECT e.event_id, e.version, e.kind, e.schema_version, e.body FROM event_key AS k JOIN event AS e USING (id)"
    " WHERE k.event_id = ANY (%s)"
)
_BLOBS = "SELECT blob_id, blob_no FROM blob WHERE blob_id = ANY (%s)"
_HEADS = "UPDATE stream_head AS h SET version = u.version FROM unnest(%s, %s) AS u (stream_id, version) WHERE h.stream_id = u.stream_id"
_BEGIN = "SELECT stream_ids, versions, made, taken, fresh_ids FROM begin_bulk(%s, %s, %s, %s, %s, %s, %s, %s)"
_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_END = struct.pack("!h", -1)
_NULL = struct.pack("!i", -1)
_EVENTS = (
    "COPY event (id, stream_id, version, event_id, kind, schema_version, canonicaliser, occurred_at, actor_id, correlation_id,"
    " causation_id, key, body, leaf) FROM STDIN (FORMAT binary)"
)
_KEYS = "COPY event_key (event_id, id) FROM STDIN (FORMAT binary)"
_EDGES = "COPY edge (child, id, n, parent, relation, weight) FROM STDIN (FORMAT binary)"
_USES = "COPY blob_use (blob_no, id) FROM STDIN (FORMAT binary)"
_TOKENS = "COPY token_live (event_id, stream_id, subject_id, parent, shared, prompt, sampled, logprobs) FROM STDIN (FORMAT binary)"
_EVENT_HEAD = struct.Struct("!h iq iq ii i16s")
_KEY = struct.Struct("!h i16s iq")
_EDGE = struct.Struct("!h iq iq ih iq")
_USE = struct.Struct("!h iq iq")
_TOKEN_HEAD = struct.Struct("!h i16s iq")
_INT = struct.Struct("!ii")
_BIG = struct.Struct("!iq")
_DOUBLE = struct.Struct("!id")


@dataclass(frozen=True)
class Placed:
    """A new event with the place that it gets."""

    item: Prepared
    ident: int
    stream_id: int
    version: int


@dataclass(frozen=True)
class Plan:
    """What is left to write once heads are locked and ids are taken.

    Attributes:
        versions: of all events, known or new.
        placed: the new ones.
        heads: stream id to its new version, of the streams that were there before.
    """

    versions: Versions
    placed: tuple[Placed, ...]
    heads: Mapping[int, int]

    @property
    def blob_ids(self) -> set[bytes]:
        """Ids of the blobs that the new events name."""
        return {blob_id for new in self.placed for blob_id in new.item.uses}

    def copies(self, blob_numbers: Mapping[bytes, int]) -> Iterator[tuple[str, Iterable[bytes]]]:
        """COPY statements with their rows, in binary format.

        Args:
            blob_numbers: of the blobs in `blob_ids`.
        Raises:
            InvalidEvent: a blob is not stored.
        """
        missing = self.blob_ids - blob_numbers.keys()
        if missing:
            raise InvalidEvent(f"blob {min(missing).hex()} is named by an event but is not stored; store it in or before the same append")
        placed = self.placed
        yield _EVENTS, map(_event_row, placed)
        yield _KEYS, (_KEY.pack(2, 16, uuid_bytes(new.item.event_id), 8, new.ident) for new in placed)
        yield _EDGES, (row for new in placed for row in _edge_rows(new))
        if blob_numbers:
            yield _USES, (_USE.pack(2, 8, blob_numbers[blob_id], 8, new.ident) for new in placed for blob_id in new.item.uses)
        if any(new.item.new.tokens is not None for new in placed):
            yield _TOKENS, (_token_row(new) for new in placed if new.item.new.tokens is not None)


def _planned(items: Sequence[Prepared], begun: Sequence[Any], known_rows: Sequence[Any], expected: Mapping[str, int]) -> Plan:
    """The plan that follows from what `begin_bulk` has answered, and from the events whose keys are taken.

    Raises:
        IdempotencyConflict, VersionConflict: as for `ledger.store.append`.
    """
    heads = list(heads_of(items))
    streams = dict(zip(heads, begun[0], strict=True))
    versions: dict[str, int] = dict(zip(heads, begun[1], strict=True))
    done = _known(items, {str(row[0]): row for row in known_rows})
    fresh = [item for item in items if item.event_id not in done]
    for stream, version in expected.items() if fresh else ():
        if versions[stream] != version:
            raise VersionConflict(f"stream {stream!r} is at version {versions[stream]}; expected {version}")
    placed: list[Placed] = []
    for item, ident in zip(fresh, begun[4] or (), strict=True):
        version = versions[item.stream] = versions[item.stream] + 1
        placed.append(Placed(item, ident, streams[item.stream], version))
        done[item.event_id] = (version, True)
    old = {stream for stream, made in zip(heads, begun[2], strict=True) if not made}
    return Plan(done, tuple(placed), {new.stream_id: versions[new.item.stream] for new in placed if new.item.stream in old} if old else {})


def write(conn: Connection, ledger_id: str, project: str, items: Sequence[Prepared], expected: Mapping[str, int]) -> Versions:
    """Versions of distinct events that are written when the caller's transaction commits.

    Raises:
        IdempotencyConflict, VersionConflict, InvalidEvent: as for `ledger.store.append`.
    """
    heads, children = heads_of(items), children_of(project, items)
    events = Counter(item.stream for item in items)
    given = (
        ledger_id, project, Texts(heads), Bigints(heads.values()), Ints(events[stream] for stream in heads),
        Texts(children), Bigints(children.values()), Uuids(item.event_id for item in items),
    )  # fmt: skip
    begun = conn.execute(_BEGIN, given).fetchone()
    assert begun is not None
    rows = conn.execute(_KNOWN, (Uuids(map(str, begun[3])),)).fetchall() if begun[3] else []
    plan = _planned(items, begun, rows, expected)
    if plan.placed:
        place(conn, plan)
    return plan.versions


def place(conn: Connection, plan: Plan) -> None:
    """Copy in the new events of a plan, whose heads the caller's transaction has locked before it took their ids.

    Raises:
        InvalidEvent: a blob is not stored.
    """
    blobs = conn.execute(_BLOBS, (Byteas(plan.blob_ids),)).fetchall() if plan.blob_ids else []
    for statement, copied in plan.copies({bytes(row[0]): int(row[1]) for row in blobs}):
        with conn.cursor() as cursor, cursor.copy(statement.encode()) as stream:
            for piece in pieces(copied):
                stream.write(piece)
    if plan.heads:
        conn.execute(_HEADS, (Bigints(plan.heads), Ints(plan.heads.values())))


def pieces(rows: Iterable[bytes]) -> Iterator[bytes]:
    """A stream in binary COPY format of rows that begin with their number of columns, cut into pieces of about 128 KiB."""
    held, size = [_SIGNATURE], 0
    for row in rows:
        held.append(row)
        size += len(row)
        if size >= PIECE_BYTES:
            yield b"".join(held)
            held, size = [], 0
    held.append(_END)
    yield b"".join(held)


def _known(items: Sequence[Prepared], rows: Mapping[str, Sequence[Any]]) -> Versions:
    for item in items if rows else ():
        row = rows.get(item.event_id)
        if row is not None and (row[2], row[3], bytes(row[4])) != item.content:
            raise IdempotencyConflict(
                f"key {item.key!r} in stream {item.stream!r} is taken by {row[2]}; seen {item.kind}: the same key needs the same content"
            )
    return {event_id: (int(row[1]), False) for event_id, row in rows.items()}


def _event_row(placed: Placed) -> bytes:
    item, new = placed.item, placed.item.new
    cause = _NULL if new.causation_id is None else b"\0\0\0\x10" + uuid_bytes(new.causation_id)
    return b"".join(
        (
            _EVENT_HEAD.pack(14, 8, placed.ident, 8, placed.stream_id, 4, placed.version, 16, uuid_bytes(item.event_id)), _text(item.kind),
            _INT.pack(4, item.schema_version), _text(canonical.NAME), _BIG.pack(8, micros(item.occurred_at)), _text(new.actor_id),
            _text(new.correlation_id), cause, _text(item.key), _bytes(item.body), b"\0\0\0\x20",
            leaf_of_parts(item.leaf_head, item.leaf_tail, placed.version),
        )
    )  # fmt: skip


def _edge_rows(placed: Placed) -> Iterator[bytes]:
    for n, edge in enumerate(placed.item.edges):
        weight = _NULL if edge.weight is None else _DOUBLE.pack(8, edge.weight)
        yield _EDGE.pack(6, 8, edge.child, 8, placed.ident, 2, n, 8, edge.parent) + _text(edge.relation) + weight


def _token_row(placed: Placed) -> bytes:
    token = placed.item.new.tokens
    assert token is not None
    parent = _NULL if token.parent is None else b"\0\0\0\x10" + uuid_bytes(token.parent)
    head = _TOKEN_HEAD.pack(8, 16, uuid_bytes(placed.item.event_id), 8, placed.stream_id)
    arrays = _bytes(token.prompt) + _bytes(token.sampled) + _bytes(token.logprobs)
    return head + _text(token.subject_id) + parent + _INT.pack(4, token.shared) + arrays


def _text(value: str | None) -> bytes:
    return _NULL if value is None else _bytes(value.encode())


def _bytes(data: bytes | None) -> bytes:
    return _NULL if data is None else len(data).to_bytes(4, "big") + data
