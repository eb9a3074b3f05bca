"""What a ledger holds of the logs of others: checkpoints taken over, source positions, their trees and proofs. Reads the database."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from ledger import checkpoint
from ledger.errors import CheckpointError, UnknownId
from ledger.interchange.log_tree import roots, tiles_of
from ledger.prepared import stamp
from ledger.proof import Checkpoint, LeafFields, Proof, b64
from ledger.tree import Edge, inclusion

Connection = psycopg.Connection[Any]
_LEAVES = (
    "SELECT e.leaf FROM source_position AS p JOIN event AS e USING (id) WHERE p.ledger_id = %s AND p.position > %s AND p.position <= %s"
    " ORDER BY p.position"
)
_EVENT = (
    "SELECT v.ledger_id, v.event_id::text, v.project, v.stream, v.version, v.kind, v.schema_version, v.canonicaliser, v.occurred_at,"
    " v.actor_id, v.correlation_id, v.causation_id::text, v.key, v.body_hash, v.body, p.ledger_id, p.position, l.note"
    " FROM event_key AS k JOIN recorded_event AS v USING (id) JOIN source_position AS p USING (id)"
    " JOIN source_log AS l ON l.ledger_id = p.ledger_id AND l.size >= p.position"
    " WHERE k.event_id = %s ORDER BY p.ledger_id <> v.ledger_id, l.size DESC LIMIT 1"
)


@dataclass(frozen=True)
class SourceCheckpoint:
    """A checkpoint of another ledger's log whose events are all here, with the verifier key that signed it."""

    head: Checkpoint
    key: str
    note: str

    def __str__(self) -> str:
        return f"{self.head.origin}, {self.head.size} events, root {b64(self.head.root)}"


def checkpoints(conn: Connection, ledger_id: str) -> list[SourceCheckpoint]:
    """Those of one ledger, the smallest first."""
    rows = conn.execute("SELECT origin, size, root, key, note FROM source_log WHERE ledger_id = %s ORDER BY size", (ledger_id,)).fetchall()
    return [SourceCheckpoint(Checkpoint(row[0], int(row[1]), bytes(row[2])), row[3], row[4]) for row in rows]


def reach(conn: Connection, ledger_id: str) -> int:
    """The highest source position that is here; 0 for none."""
    row = conn.execute("SELECT coalesce(max(position), 0) FROM source_position WHERE ledger_id = %s", (ledger_id,)).fetchone()
    return 0 if row is None else int(row[0])


def leaves(conn: Connection, ledger_id: str, since: int, until: int) -> Iterator[bytes]:
    """The leaves at source positions (since, until], in order; `conn` is in a transaction."""
    with conn.cursor(name="source_leaves") as cursor:
        cursor.itersize = 20_000
        cursor.execute(_LEAVES, (ledger_id, since, until))
        for row in cursor:
            yield bytes(row[0])


def edge_at(conn: Connection, ledger_id: str, size: int) -> Edge:
    """The right edge of the source's tree of `size` leaves."""
    return roots(Edge(), leaves(conn, ledger_id, 0, size), ())[0]


def prove(conn: Connection, event_id: str) -> Proof:
    """The proof that the newest checkpoint taken over of an event's own ledger, or of one that passed it on, covers the event.

    Raises:
        UnknownId: no event of another ledger has this id, or no checkpoint that was taken over covers it.
    """
    row = conn.execute(_EVENT, (UUID(event_id),)).fetchone()
    if row is None:
        raise UnknownId(f"no checkpoint taken over from another ledger covers an event {event_id}")
    fields = LeafFields._make([*row[:8], stamp(row[8]), *row[9:13], bytes(row[13])])
    ledger_id, index, note = str(row[15]), int(row[16]) - 1, str(row[17])
    size = checkpoint.parse(note)[0].size
    _, read = tiles_of(leaves(conn, ledger_id, 0, size))
    return Proof(fields, bytes(row[14]), index, tuple(inclusion(read, index, size)), note)


def faults(conn: Connection) -> Iterator[tuple[str, str]]:
    """Subject and fault of every log taken over that does not lead to its checkpoints; `conn` is in a transaction."""
    ledgers = conn.execute("SELECT ledger_id, count(*), max(position) FROM source_position GROUP BY 1 ORDER BY 1").fetchall()
    noted = {str(row[0]) for row in conn.execute("SELECT DISTINCT ledger_id FROM source_log").fetchall()}
    for missing in sorted(noted - {row[0] for row in ledgers}):
        yield f"log of {missing}", "a checkpoint of it was taken over, and none of its events is here"
    for ledger_id, count, highest in ledgers:
        subject = f"log of {ledger_id}"
        if count != highest:
            yield subject, f"{count} events are here of the {highest} up to its highest position"
            continue
        taken = checkpoints(conn, ledger_id)
        edge, found = roots(Edge(), leaves(conn, ledger_id, 0, highest), [item.head.size for item in taken])
        if edge.size != highest:
            yield subject, f"{edge.size} of its {highest} events are here"
        for item in taken:
            try:
                signed = checkpoint.verify(item.note, item.key)
            except CheckpointError as error:
                yield subject, f"the checkpoint of {item.head.size} events that was taken over is not signed by its key: {error}"
                continue
            root = found.get(item.head.size)
            if signed != item.head or root != item.head.root:
                seen = "nothing" if root is None else b64(root)
                taken_over = f"{signed.size} events, root {b64(signed.root)}"
                yield subject, f"its first {item.head.size} events lead to {seen}; taken over was {taken_over}"
