"""Verification of a whole ledger: whatever is stored twice or hashed is derived again and compared. Reads the database; orders first."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any
from uuid import UUID

import psycopg

from ledger import blobs
from ledger.canonical import canonical_bytes, parse
from ledger.errors import BlobError, CanonicalError, UnknownEventKind
from ledger.events import EventBody, ModelCalled
from ledger.ids import node_id
from ledger.ledger import LedgerHandle
from ledger.lineage_checks import arrays, event_fault
from ledger.order import Recorded, recorded
from ledger.token_reading import check_streams
from ledger.verify_tables import TABLE_CHECKS

Connection = psycopg.Connection[Any]
Progress = Callable[[int, int], None]
BATCH = 1000
BLOB_BATCH = 64
_COLUMNS = ", ".join("body" if column.name == "body_bytes" else column.name for column in fields(Recorded))


@dataclass(frozen=True)
class Problem:
    """Something that does not fit: in which event, or which row, and why. `position` is None for what is in no ordered event."""

    position: int | None
    subject: str
    fault: str


@dataclass(frozen=True)
class Report:
    """What was verified, and what did not fit, the earliest event first."""

    events: int
    position: int
    blobs: int
    token_arrays: int
    problems: tuple[Problem, ...]

    @property
    def intact(self) -> bool:
        """Whether everything fits."""
        return not self.problems


def verify(ledger: LedgerHandle, *, progress: Progress = lambda done, total: None) -> Report:
    """The report on all projects of a ledger, as of one moment.

    Args:
        ledger: to verify.
        progress: called with events and blobs done so far, and how many there are.
    """
    ledger.barrier()
    with ledger.connection() as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return examine(conn, progress=progress)


def examine(conn: Connection, *, progress: Progress = lambda done, total: None) -> Report:
    """The report on what the transaction of this connection sees.

    Args:
        conn: in a transaction whose reads all see one moment.
        progress: as for `verify`.
    """
    counts = conn.execute(
        "SELECT (SELECT count(*) FROM event), (SELECT count(*) FROM blob), (SELECT coalesce(max(position), 0) FROM event_order)"
    ).fetchone()
    events, stored, position = (0, 0, 0) if counts is None else map(int, counts)
    problems: list[Problem] = []
    token_arrays: list[str] = []
    for done, batch in _batches(conn):
        problems += _check_events(conn, batch, token_arrays)
        progress(done, events + stored)
    for done, broken in _check_blobs(conn):
        problems += broken
        progress(events + done, events + stored)
    for subject, statement in TABLE_CHECKS:
        problems += [Problem(row[0], f"{subject} {row[1]}", str(row[2])) for row in conn.execute(statement)]
    for found in check_streams(conn):
        subject = f"tokens of stream {found.stream_id}" if found.event_id is None else f"tokens of event {found.event_id}"
        problems.append(Problem(found.position, subject, found.fault))
    problems.sort(key=lambda problem: (problem.position is None, problem.position or 0))
    return Report(events, position, stored, len(token_arrays), tuple(problems))


def _batches(conn: Connection) -> Iterator[tuple[int, list[Recorded]]]:
    done = 0
    with conn.cursor(name="verify_events") as cursor:
        cursor.execute(f"SELECT {_COLUMNS} FROM recorded_event ORDER BY position NULLS LAST, id")
        while rows := cursor.fetchmany(BATCH):
            done += len(rows)
            yield done, [recorded(row) for row in rows]


def _check_events(conn: Connection, batch: Sequence[Recorded], token_arrays: list[str]) -> Iterator[Problem]:
    ids = [UUID(event.event_id) for event in batch]
    edges: dict[str, list[tuple[int, int, str, float | None]]] = {}
    for event_id, *edge in conn.execute(
        "SELECT e.event_id, x.child, x.parent, x.relation, x.weight FROM event_key AS e JOIN edge AS x USING (id)"
        " WHERE e.event_id = ANY (%s) ORDER BY x.n",
        (ids,),
    ):
        edges.setdefault(str(event_id), []).append((edge[0], edge[1], edge[2], edge[3]))
    uses: dict[str, set[str]] = {}
    for event_id, blob_id in conn.execute(
        "SELECT k.event_id, b.blob_id FROM event_key AS k JOIN blob_use AS u USING (id) JOIN blob AS b USING (blob_no)"
        " WHERE k.event_id = ANY (%s)",
        (ids,),
    ):
        uses.setdefault(str(event_id), set()).add(bytes(blob_id).hex())
    for event in batch:
        subject = f"event {event.event_id} ({event.kind} in {event.stream})"
        try:
            body = event.body
            faults = [*_event_faults(event, body)]
        except (UnknownEventKind, CanonicalError) as error:
            yield Problem(event.position, subject, event_fault(event) or f"it cannot be read: {error}")
            continue
        wanted = [
            (node_id(event.project, edge.child), node_id(event.project, edge.parent), edge.relation, edge.weight)
            for edge in dict.fromkeys(body.edges())
        ]
        if edges.get(event.event_id, []) != wanted:
            faults.append("its edges are not what it states")
        if _used_blobs(event, body) != uses.get(event.event_id, set()):
            faults.append("the blobs it is noted to use are not those that it names")
        if isinstance(body, ModelCalled):
            token_arrays.extend(arrays(body))
        yield from (Problem(event.position, subject, fault) for fault in faults)


def _event_faults(event: Recorded, body: EventBody) -> Iterator[str]:
    fault = event_fault(event)
    if fault is not None:
        yield fault
    if canonical_bytes(parse(event.body_bytes)) != event.body_bytes:
        yield "its body is not in canonical form"
    if (body.stream(), body.key()) != (event.stream, event.key):
        yield f"its body belongs to stream {body.stream()!r} under key {body.key()!r}, not to {event.stream!r} under {event.key!r}"


def _check_blobs(conn: Connection) -> Iterator[tuple[int, list[Problem]]]:
    done = 0
    with conn.cursor(name="verify_blobs") as cursor:
        cursor.execute("SELECT blob_id FROM blob ORDER BY blob_id")
        while rows := cursor.fetchmany(BLOB_BATCH):
            problems: list[Problem] = []
            for blob_id in [bytes(row[0]).hex() for row in rows]:
                try:
                    blobs.read(conn, blob_id)
                except BlobError as error:
                    problems.append(Problem(_first_use(conn, blob_id), f"blob {blob_id}", str(error)))
            done += len(rows)
            yield done, problems


def _used_blobs(event: Recorded, body: EventBody) -> set[str]:
    """The blobs that an event names: in the body of its own time, since a later schema may keep elsewhere what was a blob."""
    if event.schema_version == body.schema_version:
        return {ref.blob_id for ref in body.blobs()}
    return set(_blob_ids(parse(event.body_bytes)))


def _blob_ids(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if value.keys() == {"blob_id", "size", "media"}:
            yield value["blob_id"]
        for item in value.values():
            yield from _blob_ids(item)
    elif isinstance(value, list):
        for item in value:
            yield from _blob_ids(item)


def _first_use(conn: Connection, blob_id: str) -> int | None:
    row = conn.execute(
        "SELECT min(o.position) FROM blob AS b JOIN blob_use AS u USING (blob_no) JOIN event_order AS o USING (id) WHERE b.blob_id = %s",
        (bytes.fromhex(blob_id),),
    ).fetchone()
    return None if row is None or row[0] is None else int(row[0])
