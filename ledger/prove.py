"""Proof files, for `ledger/proof.py` to check anywhere: text, and the proof of an event from tiles. Reads the database."""

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psycopg

from ledger import checkpoint, queries, tree
from ledger.errors import NotSealed, SealRefused, UnknownId
from ledger.ledger import LedgerHandle
from ledger.prepared import stamp
from ledger.proof import FORMAT, Checkpoint, LeafFields, Proof, ProofError, b64, check_consistency, inclusion_root, leaf_hash
from ledger.seal import newest
from ledger.tiles import reader

Connection = psycopg.Connection[Any]


def write_proof(proof: Proof) -> str:
    """The JSON text of a proof file.

    Args:
        proof: its leaf's `body_hash` is left out, because the reader derives it from the body.
    """
    event = {name: value for name, value in proof.leaf._asdict().items() if name != "body_hash"} | {"body": b64(proof.body)}
    consistency = None
    if proof.consistency is not None:
        old_size, new_size, hashes = proof.consistency
        consistency = {"old_size": old_size, "new_size": new_size, "hashes": [b64(item) for item in hashes]}
    content = {
        "format": FORMAT,
        "event": event,
        "index": proof.index,
        "inclusion": [b64(item) for item in proof.inclusion],
        "checkpoint": proof.checkpoint,
        "consistency": consistency,
    }
    return json.dumps(content, indent=1) + "\n"


def prove_event(conn: Connection, event_id: str, kept: Sequence[str] = ()) -> Proof:
    """The proof that the newest checkpoint covers an event, and extends the newest of the notes of the same log that others kept.

    Args:
        conn: in a transaction.
        event_id: UUID of the event.
        kept: notes of a witness file.
    Raises:
        UnknownId: no such event.
        NotSealed: it has no checkpoint yet.
        SealRefused: what the database holds does not lead to its checkpoint, or a kept checkpoint is not one of its past.
    """
    leaf, body, position = _event(conn, event_id)
    last = newest(conn)
    if last is None or position is None or position > last.head.size:
        size = 0 if last is None else last.head.size
        raise NotSealed(f"event {event_id} is not sealed yet: checkpoints cover {size} events; run `tally seal --once`")
    read, size = reader(conn), last.head.size
    path = tuple(tree.inclusion(read, position - 1, size))
    if inclusion_root(leaf_hash(leaf), position - 1, size, path) != last.head.root:
        raise SealRefused(f"event {event_id} at position {position} does not lead to the root of {last}; run `tally verify`")
    return Proof(leaf, body, position - 1, path, last.note, _link(read, last.head, kept))


def resolve_event(ledger: LedgerHandle, ident: str) -> str:
    """The event id that `ident`, or what begins with it, names: of an event, of a verdict or reward, or of the end of a rollout.

    A rollout that has not ended is named by its start.

    Raises:
        UnknownId: none or several.
    """
    with ledger.connection() as conn:
        rows = conn.execute(
            "SELECT event_id::text FROM event_key WHERE event_id >= %s AND event_id <= %s ORDER BY event_id LIMIT 2", _range(ident)
        ).fetchall()
    if len(rows) == 1:
        return str(rows[0][0])
    if len(rows) > 1:
        raise UnknownId(f"{ident!r} begins the id of several events, as {rows[0][0]} and {rows[1][0]}; give more of it")
    noun, full = queries.resolve_any(ledger, ident, ("reward", "verdict", "rollout"))
    kinds = {"reward": ("RewardDerived",), "verdict": ("VerdictGiven",), "rollout": ("RolloutEnded", "RolloutStarted")}[noun]
    events = {event.kind: event.event_id for event in reversed(ledger.read_stream(f"{noun}-{full}"))}
    found = next((events[kind] for kind in kinds if kind in events), None)
    if found is None:
        raise UnknownId(f"{noun} {full} has no {' or '.join(kinds)} event yet")
    return found


def _range(prefix: str) -> tuple[UUID, UUID]:
    """The first and the last UUID that begin with these characters; an empty range where none can."""
    digits = prefix.lower().replace("-", "")
    whole = f"{digits:0<32}"
    shown = f"{whole[:8]}-{whole[8:12]}-{whole[12:16]}-{whole[16:20]}-{whole[20:]}"
    if not digits or len(digits) > 32 or set(digits) - set("0123456789abcdef") or not shown.startswith(prefix.lower()):
        return UUID(int=1), UUID(int=0)
    return UUID(whole), UUID(f"{digits:f<32}")


def _event(conn: Connection, event_id: str) -> tuple[LeafFields, bytes, int | None]:
    row = conn.execute(
        "SELECT v.ledger_id, v.event_id::text, v.project, v.stream, v.version, v.kind, v.schema_version, v.canonicaliser, v.occurred_at,"
        " v.actor_id, v.correlation_id, v.causation_id::text, v.key, v.body_hash, v.body, v.position"
        " FROM event_key AS k JOIN recorded_event AS v ON v.id = k.id WHERE k.event_id = %s",
        (event_id,),
    ).fetchone()
    if row is None:
        raise UnknownId(f"no event {event_id}")
    fields = LeafFields._make([*row[:8], stamp(row[8]), *row[9:13], bytes(row[13])])
    return fields, bytes(row[14]), None if row[15] is None else int(row[15])


def _link(read: tree.TileReader, head: Checkpoint, kept: Sequence[str]) -> tuple[int, int, tuple[bytes, ...]] | None:
    own = [checkpoint.parse(note)[0] for note in kept if note.startswith(f"{head.origin}\n")]
    seen = max(own, key=lambda item: item.size, default=None)
    if seen is None:
        return None
    if seen.size > head.size:
        raise SealRefused(
            f"the witness has a checkpoint of {seen.size} events, the database only of {head.size}: it lies below what was published"
        )
    path = tuple(tree.consistency(read, seen.size, head.size))
    try:
        check_consistency(seen.size, seen.root, head.size, head.root, path)
    except ProofError as error:
        raise SealRefused(f"the witness's checkpoint of {seen.size} events is not one of this log's past: {error}") from error
    return None if seen.size in (0, head.size) else (seen.size, head.size, path)
