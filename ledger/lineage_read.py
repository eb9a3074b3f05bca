"""Everything that a trace shows, events and the bytes of their blobs, in one statement. Reads the database."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, LiteralString

from ledger import blobs, subjects
from ledger.errors import BlobError, BlobShredded, BlobWithheld
from ledger.ids import node_id
from ledger.ledger import LedgerHandle
from ledger.order import Recorded, recorded
from ledger.subject_names import kept_elsewhere
from ledger.token_reading import Tokens, examine_tokens

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
  SELECT array_agg(b.blob_id) AS ids, array_agg(b.subject_id) AS subjects, array_agg(b.size) AS sizes, array_agg(b.codec) AS codecs,
    array_agg((SELECT string_agg(c.data, ''::bytea ORDER BY c.chunk) FROM blob_chunk AS c WHERE c.blob_no = b.blob_no)) AS data{keys}
  FROM blob_use AS u JOIN blob AS b USING (blob_no){subject}
  WHERE u.id = e.id AND (e.kind <> 'StateSnapshotted' OR encode(b.blob_id, 'hex') IS DISTINCT FROM
    substring(encode(e.body, 'escape') FROM '"snapshot":{{"blob_id":"([0-9a-f]{{64}})"')
    OR encode(e.body, 'escape') LIKE '%%"view":{{"blob_id":"' || encode(b.blob_id, 'hex') || '"%%')) AS held ON true
"""
_HELD = "held.ids, held.subjects, held.sizes, held.codecs, held.data"
_KEYS = ", held.salts, held.keys, held.destroyed"
_WHOLE = _BLOBS.format(
    keys=", array_agg(s.salt) AS salts, array_agg(s.key) AS keys, array_agg(s.destroyed_at) AS destroyed",
    subject=" LEFT JOIN subject AS s USING (subject_id)",
)
_FIELDS = {
    "position": "o.position", "ledger_id": "h.ledger_id", "project": "n.project", "stream": "n.name", "body_bytes": "e.body",
    "body_hash": "sha256(e.body)",
}  # fmt: skip
_NAMES = [column.name for column in fields(Recorded)]
_KIND = _NAMES.index("kind")
_EVENT = ", ".join(_FIELDS.get(name, f"e.{name}") for name in _NAMES)
_VIEWED = ", ".join("e.body" if name == "body_bytes" else f"e.{name}" for name in _NAMES)
STATEMENTS = {
    noun: f"WITH rollout (node) AS MATERIALIZED ({rollout}){_AROUND} SELECT e.stream_id, {_EVENT}, {_HELD}{_KEYS} FROM around"
    " JOIN stream_head AS h ON h.node_id = around.node JOIN node AS n ON n.node_id = h.node_id"
    f" JOIN event AS e ON e.stream_id = h.stream_id LEFT JOIN event_order AS o ON o.id = e.id {_WHOLE} ORDER BY o.position"
    for noun, rollout in _ROLLOUT.items()
}
"""Noun to the statement, which takes the `node` id of a reward or a rollout."""
_FOR_READERS = {
    noun: f"WITH rollout (node) AS MATERIALIZED ({rollout}){_AROUND} SELECT e.stream_id, {_VIEWED}, {_HELD} FROM around"
    f" JOIN ordered_event AS e ON e.node_id = around.node {_BLOBS.format(keys='', subject='')} ORDER BY e.position"
    for noun, rollout in _ROLLOUT.items()
}
"""The same through the ordered view, for who may read neither the table of events nor, perhaps, subjects' keys."""


@dataclass(frozen=True)
class Found:
    """Events in position order, and by blob id: the bytes of each blob that fits its commitment, what is wrong with each that does not,
    and why nothing is known of those whose subject was shredded or whose key stayed with another ledger."""

    events: list[Recorded]
    data: dict[str, bytes] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    shredded: dict[str, BlobShredded] = field(default_factory=dict)
    withheld: dict[str, BlobWithheld] = field(default_factory=dict)
    tokens: Tokens = field(default_factory=Tokens)


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
    statement = STATEMENTS[noun] if ledger.rights.appends else _FOR_READERS[noun]
    given = {"node": node_id(ledger.project, f"{noun}-{ident}")}
    with ledger.connection() as conn, conn.cursor(binary=True) as cursor:
        rows = cursor.execute(statement, given, prepare=True).fetchall()
        found = Found([recorded(row[1:]) for row in rows])
        held = [row[1 + len(_NAMES) :] for row in rows if row[1 + len(_NAMES)] is not None]
        stored = {bytes(blob[0]): blob[1:] for columns in held for blob in zip(*columns, strict=True)}
        known, closed = _subjects(conn, stored)
        called = {row[0] for row in rows if row[1 + _KIND] == "ModelCalled"}
        found = replace(found, tokens=_tokens(conn, called, ordered=not ledger.rights.appends))
    for raw_id, (subject_id, size, codec, data, *_) in stored.items():
        try:
            if subject_id not in known:
                raise BlobError(f"blob {raw_id.hex()}: {closed}") if closed else blobs.without_subject(raw_id.hex(), subject_id)
            found.data[raw_id.hex()] = blobs.opened(known[subject_id], raw_id, size, codec, bytes(data or b""))
        except BlobShredded as error:
            found.shredded[raw_id.hex()] = error
        except BlobWithheld as error:
            found.withheld[raw_id.hex()] = error
        except BlobError as error:
            found.broken[raw_id.hex()] = str(error)
    return found


def _tokens(conn: blobs.Connection, streams: set[int], *, ordered: bool) -> Tokens:
    try:
        return examine_tokens(conn, sorted(streams), ordered=ordered) if streams else Tokens()
    except BlobError as error:
        return Tokens(faults=[(None, str(error))])


def _subjects(conn: blobs.Connection, stored: Mapping[bytes, tuple[Any, ...]]) -> tuple[dict[str, subjects.Subject], str]:
    """The subjects of blobs by id, and why others are closed to this login."""
    known = {subjects.PUBLIC: subjects.PUBLIC_SUBJECT}
    if stored and len(next(iter(stored.values()))) > 4:
        for subject_id, _, _, _, salt, key, destroyed_at in stored.values():
            if not (salt is None and destroyed_at is None and kept_elsewhere(subject_id)):
                known.setdefault(subject_id, subjects.opened(conn, subject_id, salt, key, destroyed_at))
        return known, ""
    try:
        return known | subjects.load(conn, {blob[0] for blob in stored.values()}), ""
    except BlobError as error:
        return known, str(error)
