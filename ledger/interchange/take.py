"""Takes a batch of another ledger's events over: their leaves, streams and versions stay, their positions are new. Writes the database."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from ledger import blobs as blob_store
from ledger import bulk
from ledger import subjects as subject_store
from ledger.arrays import Bigints, Byteas, Texts, Uuids
from ledger.blobs import Pending
from ledger.errors import DivergedLog, PushRefused, UnknownEventKind
from ledger.events import BlobRef
from ledger.interchange.carried import CarriedBlob, CarriedEvent, CarriedStream, CarriedSubject, event_fault, moment, opened
from ledger.prepared import New, NodeEdge, Prepared, node
from ledger.proof import leaf_parts
from ledger.subject_names import kept_elsewhere, subject_abroad

Connection = psycopg.Connection[Any]
LOCK = 74617
"""Class of the advisory locks under which the log of one ledger grows here."""
_ADD_NODES = (
    "INSERT INTO node (node_id, project, name) SELECT u.node_id, u.project, u.name FROM unnest(%s, %s, %s) AS u (node_id, project, name)"
    " ORDER BY 1 ON CONFLICT DO NOTHING"
)
_OTHER_NODE = (
    "SELECT u.name FROM unnest(%s, %s, %s) AS u (node_id, project, name) JOIN node AS n USING (node_id)"
    " WHERE (n.project, n.name) <> (u.project, u.name) LIMIT 1"
)
_REFUSE_FOREIGN = "SELECT refuse_foreign(u.ledger_id, u.name, u.node_id) FROM unnest(%s, %s, %s) AS u (node_id, ledger_id, name)"
_ADD_HEADS = (
    "INSERT INTO stream_head (node_id, ledger_id, version) SELECT u.node_id, u.ledger_id, 0 FROM unnest(%s, %s) AS u (node_id, ledger_id)"
    " WHERE NOT EXISTS (SELECT FROM stream_head AS h WHERE h.node_id = u.node_id AND h.ledger_id = u.ledger_id)"
    " ORDER BY u.node_id, u.ledger_id ON CONFLICT DO NOTHING"
)
_LOCK_HEADS = (
    "SELECT h.node_id, h.ledger_id, h.stream_id, h.version FROM stream_head AS h JOIN unnest(%s, %s) AS u (node_id, ledger_id)"
    " USING (node_id, ledger_id) ORDER BY h.node_id, h.ledger_id FOR UPDATE OF h"
)
_KNOWN = "SELECT k.event_id::text, k.id, e.leaf FROM event_key AS k JOIN event AS e USING (id) WHERE k.event_id = ANY (%s)"
_HAS_TOKENS = "SELECT FROM token_live WHERE stream_id = %(stream)s UNION ALL SELECT FROM token_pack WHERE stream_id = %(stream)s LIMIT 1"
_NEW_IDS = "SELECT nextval('event_id_seq') FROM generate_series(1, %s)"
_PLACES = "COPY source_position (ledger_id, position, id) FROM STDIN"


@dataclass(frozen=True)
class Checked:
    """An event that travelled whole, ready to be written."""

    carried: CarriedEvent
    prepared: Prepared

    @property
    def head(self) -> tuple[int, str]:
        """Node and ledger of its stream."""
        return self.prepared.node, self.carried.fields.ledger_id


def checked(event: CarriedEvent) -> Checked:
    """The event ready to be written.

    Raises:
        PushRefused: it does not travel whole, or this release does not know its kind.
    """
    fault = event_fault(event)
    if fault is not None:
        raise PushRefused(f"{event}: {fault}")
    fields = event.fields
    try:
        body = opened(event)
    except UnknownEventKind as error:
        raise PushRefused(f"{event} cannot be read here: {error}") from error
    occurred = moment(fields.occurred_at)
    assert occurred is not None
    head, tail = leaf_parts(fields)
    project, stream = fields.project, fields.stream
    edges = list(dict.fromkeys(body.edges()))
    prepared = Prepared(
        New(body, occurred, fields.actor_id, fields.correlation_id, fields.causation_id), stream, node(project, stream), fields.key,
        fields.event_id, fields.kind, fields.schema_version, event.body, occurred, head, tail,
        tuple(NodeEdge(node(project, edge.child), node(project, edge.parent), edge.relation, edge.weight) for edge in edges),
        tuple({edge.child for edge in edges if edge.child != stream}), tuple({bytes.fromhex(ref.blob_id) for ref in body.blobs()}),
    )  # fmt: skip
    return Checked(event, prepared)


def take(conn: Connection, source_id: str, own_id: str, events: Sequence[Checked]) -> int:
    """Number of the events that were not here yet; all of them have their source positions when the caller's transaction commits.

    Args:
        conn: in a transaction that has taken no event id; the blobs that the events name are stored.
        source_id: whose log they come from.
        own_id: this ledger's id.
        events: at consecutive positions of that log, next to those that are here.
    Raises:
        DivergedLog: an event is here with another leaf, or its stream is at another version.
        PushRefused: this ledger's own event is not here.
        ForeignStream: the name of a stream belongs to another ledger.
    """
    _add_names(conn, events)
    heads = sorted({item.head for item in events})
    given = (Bigints(head[0] for head in heads), Texts(head[1] for head in heads))
    names = {item.head: item.prepared.stream for item in events}
    conn.execute(_REFUSE_FOREIGN, (*given, Texts(names[head] for head in heads)))
    conn.execute(_ADD_HEADS, given)
    streams: dict[tuple[int, str], tuple[int, int]] = {
        (int(row[0]), str(row[1])): (int(row[2]), int(row[3])) for row in conn.execute(_LOCK_HEADS, given)
    }
    known = {row[0]: (int(row[1]), bytes(row[2])) for row in conn.execute(_KNOWN, (Uuids(item.prepared.event_id for item in events),))}
    for item in events:
        if item.prepared.event_id in known and known[item.prepared.event_id][1] != item.carried.leaf:
            here, given_leaf = known[item.prepared.event_id][1].hex(), item.carried.leaf.hex()
            raise DivergedLog(f"{item.carried} has leaf {given_leaf}; here it has leaf {here}: two histories of one ledger")
    fresh = [item for item in events if item.prepared.event_id not in known]
    versions = _versions(fresh, streams, own_id)
    ids = sorted(int(row[0]) for row in conn.execute(_NEW_IDS, (len(fresh),))) if fresh else []
    if ids:
        conn.execute("SELECT make_room('event', %s)", (ids[-1],))
    placed = tuple(
        bulk.Placed(item.prepared, ident, streams[item.head][0], item.carried.fields.version)
        for item, ident in zip(fresh, ids, strict=True)
    )
    if placed:
        bulk.place(conn, bulk.Plan({}, placed, versions))
    where = {event_id: number for event_id, (number, _) in known.items()} | {new.item.event_id: new.ident for new in placed}
    with conn.cursor() as cursor, cursor.copy(_PLACES) as stream:
        for item in events:
            stream.write_row((source_id, item.carried.position, where[item.prepared.event_id]))
    return len(placed)


def _add_names(conn: Connection, events: Sequence[Checked]) -> None:
    names = {item.prepared.node: (item.carried.fields.project, item.prepared.stream) for item in events}
    for item in events:
        project = item.carried.fields.project
        names.update({node(project, child): (project, child) for child in item.prepared.children})
    given = (Bigints(names), Texts(project for project, _ in names.values()), Texts(name for _, name in names.values()))
    conn.execute(_ADD_NODES, given)
    other = conn.execute(_OTHER_NODE, given).fetchone()
    if other is not None:
        raise PushRefused(f"the node id of {other[0]!r} is taken by another name here")


def _versions(fresh: Sequence[Checked], streams: dict[tuple[int, str], tuple[int, int]], own_id: str) -> dict[int, int]:
    """Stream id to the version that it is at after these events."""
    versions = dict(streams.values())
    for item in fresh:
        fields, (stream_id, _) = item.carried.fields, streams[item.head]
        if fields.ledger_id == own_id:
            raise PushRefused(
                f"{item.carried} is of this very ledger and is not here: the database lies behind what it published, as after a restore"
            )
        if fields.version != versions[stream_id] + 1:
            raise DivergedLog(f"{item.carried} is version {fields.version} of its stream, which is at version {versions[stream_id]} here")
        versions[stream_id] = fields.version
    return {streams[item.head][0]: versions[streams[item.head][0]] for item in fresh}


def missing_blobs(conn: Connection, events: Sequence[Checked]) -> set[bytes]:
    """Ids of the blobs that the events name and that are not stored here."""
    named = {blob_id for item in events for blob_id in item.prepared.uses}
    rows = conn.execute("SELECT blob_id FROM blob WHERE blob_id = ANY (%s)", (Byteas(named),)).fetchall() if named else []
    return named - {bytes(row[0]) for row in rows}


def take_blobs(conn: Connection, source_id: str, own_id: str, group: Sequence[CarriedBlob]) -> int:
    """Number of blobs that were new; each that can be read here is read back, so that its commitment is checked.

    Raises:
        BlobError: the bytes of a blob do not match its name.
    """
    names = {blob.blob_id: subject_abroad(blob.subject_id, source_id, own_id) for blob in group}
    written = blob_store.write(
        conn,
        [
            Pending(BlobRef(blob_id=blob.blob_id.hex(), size=blob.size, media=""), names[blob.blob_id], blob.data, blob.codec)
            for blob in group
        ],
    )
    for error in blob_store.find(conn, [blob_id.hex() for blob_id in names]).broken.values():
        raise error
    return written


def take_subjects(conn: Connection, source_id: str, own_id: str, subjects: Sequence[CarriedSubject]) -> tuple[int, int]:
    """How many subjects' keys were new here, and how many are destroyed now because an event that is here says so."""
    named = [(subject_abroad(subject.subject_id, source_id, own_id), subject) for subject in subjects]
    foreign = [(name, subject) for name, subject in named if kept_elsewhere(name)]
    added = sum(
        subject_store.take(conn, name, subject.salt, subject.key)
        for name, subject in foreign
        if subject.destroyed_at is None and subject.salt is not None
    )
    gone = conn.execute(
        "SELECT destroy_foreign_subjects(%s)", (Texts(name for name, subject in foreign if subject.destroyed_at is not None),)
    ).fetchone()
    return added, 0 if gone is None else int(gone[0])


def take_tokens(conn: Connection, source_id: str, own_id: str, carried: CarriedStream) -> tuple[int, int]:
    """How many packs and staged calls of a stream were new here; what its source has packed is staged no longer."""
    row = conn.execute(
        "SELECT stream_id FROM stream_head WHERE node_id = %s AND ledger_id = %s FOR UPDATE",
        (node(carried.project, carried.stream), carried.ledger_id),
    ).fetchone()
    if row is None or carried.ledger_id == own_id:
        return 0, 0
    if carried.ledger_id != source_id and conn.execute(_HAS_TOKENS, {"stream": row[0]}).fetchone():
        # What a third ledger has of them may be older than what is here.
        return 0, 0
    packs = staged = 0
    for pack in carried.packs:
        taken = conn.execute(
            "SELECT take_pack(%s, %s, %s, %s)", (row[0], subject_abroad(pack.subject_id, source_id, own_id), pack.calls, pack.data)
        ).fetchone()
        packs += 0 if taken is None else int(taken[0])
    for call in carried.staged:
        staged += conn.execute(
            "INSERT INTO token_live (event_id, stream_id, subject_id, parent, shared, prompt, sampled, logprobs)"
            " SELECT k.event_id, %(stream)s, %(subject)s::text, %(parent)s, %(shared)s, %(prompt)s, %(sampled)s, %(logprobs)s"
            " FROM event_key AS k WHERE k.event_id = %(event_id)s AND NOT EXISTS (SELECT FROM subject AS s"
            " WHERE s.subject_id = %(subject)s::text AND s.destroyed_at IS NOT NULL) ON CONFLICT DO NOTHING",
            {**call.__dict__, "stream": row[0], "subject": subject_abroad(call.subject_id, source_id, own_id)},
        ).rowcount
    if carried.ledger_id == source_id:
        conn.execute("SELECT unstage_tokens(%s, %s)", (row[0], Uuids(call.event_id for call in carried.staged)))
    return packs, staged
