"""Everything that a trace shows, events and the bytes of their blobs, in one statement. Reads the database."""

from dataclasses import dataclass, fields
from typing import LiteralString

from ledger import blobs
from ledger.errors import BlobError
from ledger.ids import node_id
from ledger.ledger import LedgerHandle
from ledger.order import Recorded, recorded

# The shape is known, so nothing recurs: a rollout with what was said of it, what all that names, and what a model was trained from. Calls
# have no stream, they only lead to the models that sampled them. The bytes that restore a state are shown to nobody and not read; body
# text is searched for their name because a body that was changed behind the ledger's back may not be JSON.
_ROLLOUT: dict[str, LiteralString] = {
    "reward": "SELECT parent FROM edge WHERE child = %(node)s AND relation = 'rewards'", "rollout": "SELECT %(node)s::bigint",
}  # fmt: skip
_AROUND: LiteralString = """, low (node, relation) AS MATERIALIZED (
  SELECT node, 'is' FROM rollout
  UNION ALL SELECT x.child, x.relation FROM rollout JOIN edge AS x ON x.parent = rollout.node
    WHERE x.relation IN ('made_in', 'judges', 'reviews', 'rewards')),
above (node, relation) AS MATERIALIZED (
  SELECT DISTINCT x.parent, x.relation FROM low JOIN edge AS x ON x.child = low.node
  WHERE x.relation IN ('member_of', 'attempts', 'sampled_by', 'given_by')),
around (node) AS (
  SELECT node FROM low WHERE relation <> 'made_in'
  UNION SELECT node FROM above
  UNION SELECT x.parent FROM above JOIN edge AS x ON x.child = above.node
    WHERE above.relation = 'sampled_by' AND x.relation = 'trained_from')
"""
_BLOBS: LiteralString = """LEFT JOIN LATERAL (
  SELECT array_agg(b.blob_id) AS ids, array_agg(coalesce(s.salt, ''::bytea)) AS salts, array_agg(b.size) AS sizes, array_agg(
    (SELECT string_agg(c.data, ''::bytea ORDER BY c.chunk) FROM blob_chunk AS c WHERE c.blob_no = b.blob_no)) AS data
  FROM blob_use AS u JOIN blob AS b USING (blob_no) LEFT JOIN subject AS s USING (subject_id)
  WHERE u.id = e.id AND (e.kind <> 'StateSnapshotted' OR encode(b.blob_id, 'hex') IS DISTINCT FROM
    substring(encode(e.body, 'escape') FROM '"snapshot":{"blob_id":"([0-9a-f]{64})"')
    OR encode(e.body, 'escape') LIKE '%%"view":{"blob_id":"' || encode(b.blob_id, 'hex') || '"%%')) AS held ON true
"""
_FIELDS = {
    "position": "o.position", "ledger_id": "h.ledger_id", "project": "n.project", "stream": "n.name", "body_bytes": "e.body",
    "body_hash": "sha256(e.body)",
}  # fmt: skip
_COLUMNS = [_FIELDS.get(column.name, f"e.{column.name}") for column in fields(Recorded)]
STATEMENTS = {
    noun: f"WITH rollout (node) AS MATERIALIZED ({rollout}){_AROUND}"
    f"SELECT {', '.join(_COLUMNS)}, held.ids, held.salts, held.sizes, held.data FROM around"
    " JOIN stream_head AS h ON h.node_id = around.node JOIN node AS n ON n.node_id = h.node_id"
    f" JOIN event AS e ON e.stream_id = h.stream_id LEFT JOIN event_order AS o ON o.id = e.id {_BLOBS} ORDER BY o.position"
    for noun, rollout in _ROLLOUT.items()
}
"""Noun to the statement, which takes the `node` id of a reward or a rollout."""


@dataclass(frozen=True)
class Found:
    """Events in position order; the bytes of each blob that fits its commitment by blob id; and what is wrong with each that does not."""

    events: list[Recorded]
    data: dict[str, bytes]
    broken: dict[str, str]


def read(ledger: LedgerHandle, noun: str, ident: str) -> Found:
    """What is recorded around a reward or a rollout, ordered: what was committed before the call is there and has a position.

    Args:
        noun: `reward` or `rollout`.
    """
    found = _read(ledger, noun, ident)
    if any(event.position is None for event in found.events):
        ledger.barrier()
        found = _read(ledger, noun, ident)
    return found


def _read(ledger: LedgerHandle, noun: str, ident: str) -> Found:
    given = {"node": node_id(ledger.project, f"{noun}-{ident}")}
    with ledger.connection() as conn, conn.cursor(binary=True) as cursor:
        rows = cursor.execute(STATEMENTS[noun], given, prepare=True).fetchall()
    events: list[Recorded] = []
    stored: dict[str, tuple[bytes, int, bytes | None]] = {}
    for row in rows:
        events.append(recorded(row[:-4]))
        if row[-4] is not None:
            stored |= {bytes(blob_id).hex(): (salt, size, held) for blob_id, salt, size, held in zip(*row[-4:], strict=True)}
    data: dict[str, bytes] = {}
    broken: dict[str, str] = {}
    for blob_id, (salt, size, held) in stored.items():
        try:
            data[blob_id] = blobs.opened(blob_id, salt=salt, size=size, data=held)
        except BlobError as error:
            broken[blob_id] = str(error)
    return Found(events, data, broken)
