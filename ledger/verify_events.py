"""Verification of events by internal id: hashes, ids, canonical form, the edges and blob uses that they state. Reads the database.

A row comes in PostgreSQL's binary COPY format, in which a text column is its length in four bytes and its bytes, and null is 2^32 - 1:
exactly how a leaf encodes its fields. So the leaf's fields are selected in the leaf's order, and are hashed as they arrive.
"""

import struct
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import psycopg

from ledger import ids
from ledger.body_shapes import shaped
from ledger.canonical import canonical_bytes, parse, unsuspicious
from ledger.errors import CanonicalError, UnknownEventKind
from ledger.events import Edge, EventBody, LogForked, ModelCalled
from ledger.prepared import node
from ledger.proof import DOMAIN
from ledger.upcast import CLASSES, decode
from ledger.verify_report import Fault

Connection = psycopg.Connection[Any]
CHUNK = 20_000
_FETCH = 5_000
_ROWS = """COPY (SELECT e.id, coalesce(h.node_id, 0), e.schema_version, octet_length(e.body), octet_length(e.leaf), octet_length(e.key),
  coalesce(octet_length(n.name), 0), coalesce(octet_length(n.project), 0), octet_length(e.kind), e.event_id, e.kind,
  h.ledger_id, e.event_id::text, n.project, n.name, e.version::text, e.kind, e.schema_version::text, e.canonicaliser,
  to_char(e.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), e.actor_id, e.correlation_id, e.causation_id::text, e.key,
  e.leaf, e.body
  FROM event AS e LEFT JOIN stream_head AS h USING (stream_id) LEFT JOIN node AS n USING (node_id)
  WHERE e.id > {} ORDER BY e.id LIMIT {}) TO STDOUT (FORMAT binary)"""
_EDGES = "SELECT id, n, child, parent, relation, weight FROM edge ORDER BY id, n"
_USES = "SELECT u.id, b.blob_id FROM blob_use AS u JOIN blob AS b USING (blob_no) ORDER BY u.id"
_COLUMNS = b"\0\x1a"
_HEAD = struct.Struct("!h iq iq ii ii ii ii ii ii ii i16s i")
_unpack = _HEAD.unpack_from
_START = b"\x00" + len(DOMAIN).to_bytes(4, "big") + DOMAIN.encode()
_HASH_LENGTH = b"\0\0\0\x20"
_UUID_KEPT, _UUID_SET = 0xFFFFFFFFFFFF0FFF3FFFFFFFFFFFFFFF, 0x00000000000080008000000000000000
_Edge = tuple[int, int, int, str, float | None]


class _Event(NamedTuple):
    """A row: `fields` are the bytes of all leaf fields but the body's hash."""

    id: int
    node: int
    schema_version: int
    event_id: bytes
    kind: str
    project: str
    stream: str
    key: str
    fields: bytes
    leaf: bytes
    body: bytes

    @property
    def named(self) -> "_Named":
        """What a fault names it by."""
        return self.event_id, self.kind, self.stream


_Named = tuple[bytes, str, str]


class EventPass:
    """Goes over all events once.

    Attributes:
        faults: of the chunks so far.
        forks: the events `LogForked`, by internal id.
        calls: ids of the model calls of the last chunk with their bodies, for the check of their tokens.
    """

    def __init__(self, conn: Connection, ledger_id: str) -> None:
        self.conn, self.ledger_id = conn, ledger_id
        self.faults: list[Fault] = []
        self.forks: dict[int, LogForked] = {}
        self.calls: list[tuple[int, str, ModelCalled]] = []
        self._stated: dict[int, list[_Edge]] = {}
        self._named: dict[int, set[bytes]] = {}
        self._seen: dict[int, _Named] = {}

    def chunks(self) -> Iterator[int]:
        """Number of events done, after each chunk of them."""
        done, low = 0, 0
        with self._cursor("edges") as edges, self._cursor("uses") as uses:
            edges.execute(_EDGES, binary=True)
            uses.execute(_USES, binary=True)
            edge_groups, use_groups = _Groups(edges), _Groups(uses)
            while True:
                self._stated, self._named, self._seen, self.calls = {}, {}, {}, []
                for row in self._rows(low):
                    event = _read(row)
                    self._seen[event.id] = event.named
                    if not self._fits(event):
                        self.faults += [Fault(event.id, _subject(event.named), fault) for fault in self._misfits(event)]
                    low, done = event.id, done + 1
                last = low if self._seen else None
                self._compare(edge_groups, use_groups, last)
                if last is None:
                    return
                yield done

    def _cursor(self, name: str) -> "psycopg.ServerCursor[Any]":
        return psycopg.ServerCursor(self.conn, f"verify_{name}")

    def _rows(self, low: int) -> Iterator[bytes]:
        with self.conn.cursor() as cursor, cursor.copy(_ROWS.format(low, CHUNK).encode()) as stream:
            for data in stream:
                row = bytes(data)
                if row[:6] == b"PGCOPY":
                    row = row[19:]
                if row[:2] == _COLUMNS:
                    yield row

    def _fits(self, event: _Event) -> bool:
        """Whether everything about an event that its row shows fits, the usual case; what it states is kept for comparison."""
        digest = sha256(event.body).digest()
        if sha256(_START + event.fields + _HASH_LENGTH + digest).digest() != event.leaf or not event.stream:
            return False
        if node(event.project, event.stream) != event.node or _event_id(self.ledger_id, event) != event.event_id:
            return False
        cls = CLASSES.get(event.kind)
        if cls is None or event.schema_version != cls.schema_version or not unsuspicious(event.body):
            return False
        refs: list[str] = []
        try:
            value = orjson.loads(event.body)
            if orjson.dumps(value, option=orjson.OPT_SORT_KEYS) != event.body:
                return False
            body = shaped(cls, value, refs)
            if body.stream() != event.stream or body.key() != event.key:
                return False
            stated = body.edges()
        except (ValueError, AttributeError, KeyError, TypeError):
            # It is read without validation here; with it, the error says what is wrong, or a default is filled in.
            return False
        self._keep(event, body, refs, stated)
        return True

    def _misfits(self, event: _Event) -> Iterator[str]:
        """What does not fit, by checks that are slow and say more; nothing for what only looked unusual."""
        if not event.stream:
            yield "its stream has no head or no name"
            return
        if _event_id(self.ledger_id, event) != event.event_id:
            yield "its event id does not follow from its ledger, project, stream and key"
        if sha256(_START + event.fields + _HASH_LENGTH + sha256(event.body).digest()).digest() != event.leaf:
            yield "its leaf does not match its fields and body"
        if node(event.project, event.stream) != event.node:
            yield "its stream's node id does not follow from its project and name"
        try:
            if canonical_bytes(parse(event.body)) != event.body:
                yield "its body is not in canonical form"
            body = decode(event.kind, event.schema_version, event.body)
        except (UnknownEventKind, CanonicalError) as error:
            yield f"it cannot be read: {error}"
            return
        if (body.stream(), body.key()) != (event.stream, event.key):
            yield f"its body belongs to stream {body.stream()!r} under key {body.key()!r}, not to {event.stream!r} under {event.key!r}"
        self._keep(event, body, [ref.blob_id for ref in body.blobs()], body.edges())

    def _keep(self, event: _Event, body: EventBody, refs: Sequence[str], stated: Sequence[Edge]) -> None:
        project = event.project
        if stated:
            self._stated[event.id] = [
                (n, node(project, child), node(project, parent), relation, weight)
                for n, (child, parent, relation, weight) in enumerate(dict.fromkeys(stated) if len(stated) > 1 else stated)
            ]
        if refs:
            self._named[event.id] = {bytes.fromhex(ref) for ref in refs}
        if isinstance(body, ModelCalled):
            self.calls.append((event.id, _subject(event.named), body))
        elif isinstance(body, LogForked):
            self.forks[event.id] = body

    def _compare(self, edges: "_Groups", uses: "_Groups", last: int | None) -> None:
        for ident, rows in edges.up_to(last):
            if ident not in self._seen:
                names = ", ".join(f"{row[2]} {row[4]} {row[3]}" for row in rows[:3])
                self.faults.append(Fault(None, f"edge {names}", "the event that states it is not here"))
            elif self._stated.pop(ident, None) != [row[1:] for row in rows]:
                self._add(ident, "its edges are not what it states")
        for ident, rows in uses.up_to(last):
            if ident in self._seen and self._named.pop(ident, set()) != {row[1] for row in rows}:
                self._add(ident, "the blobs it is noted to use are not those that it names")
        for ident in self._stated:
            self._add(ident, "its edges are not what it states")
        for ident in self._named:
            self._add(ident, "the blobs it is noted to use are not those that it names")

    def _add(self, ident: int, fault: str) -> None:
        self.faults.append(Fault(ident, _subject(self._seen[ident]), fault))


class _Groups:
    """Rows of a cursor in groups of one event, given out as far as the events have come."""

    def __init__(self, cursor: "psycopg.ServerCursor[Any]") -> None:
        self._groups = groupby(_fetched(cursor), key=itemgetter(0))
        self._next = self._read()

    def _read(self) -> tuple[int, list[Any]] | None:
        found = next(self._groups, None)
        return None if found is None else (found[0], list(found[1]))

    def up_to(self, last: int | None) -> Iterator[tuple[int, list[Any]]]:
        """Id and rows of each event up to this id; None for all that are left."""
        while self._next is not None and (last is None or self._next[0] <= last):
            yield self._next
            self._next = self._read()


def _fetched(cursor: "psycopg.ServerCursor[Any]") -> Iterator[Any]:
    while rows := cursor.fetchmany(_FETCH):
        yield from rows


def _read(row: bytes) -> _Event:
    _, _, ident, _, node_id, _, schema, _, size, _, hashed, _, keyed, _, named, _, projected, _, kinded, _, event_id, _ = _unpack(row)
    first = _HEAD.size + kinded
    end = len(row) - size - 8 - hashed
    # Length, ledger id, length and 36 characters of the event id come before the project; without a stream head there is none.
    at = first + 48 + (int.from_bytes(row[first : first + 4], "big") if named else 0)
    until = at + projected + 4
    return _Event(
        ident, node_id, schema, event_id, row[_HEAD.size : first].decode(), row[at : at + projected].decode(),
        row[until : until + named].decode(), row[end - keyed : end].decode(), row[first:end], row[end + 4 : end + 4 + hashed],
        row[len(row) - size :],
    )  # fmt: skip


def _subject(named: _Named) -> str:
    return f"event {UUID(bytes=named[0])} ({named[1]} in {named[2]})"


def _event_id(ledger_id: str, event: _Event) -> bytes:
    text = f'{ledger_id}","{event.project}","{event.stream}","{event.key}'
    # Text without quotes, backslashes and control characters is its own JSON.
    if text.count('"') != 6 or "\\" in text or not text.isprintable():
        return UUID(ids.event_id(ledger_id, event.project, event.stream, event.key)).bytes
    digest = sha256(f'["tallystick/event-id/1","{text}"]'.encode()).digest()
    return (int.from_bytes(digest[:16], "big") & _UUID_KEPT | _UUID_SET).to_bytes(16, "big")
