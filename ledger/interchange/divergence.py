"""Whether a pushed log goes on from what was taken over of it before. Reads the database."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from ledger import checkpoint
from ledger.errors import DivergedLog, PushRefused
from ledger.interchange import held
from ledger.interchange.carried import Fork, Source
from ledger.interchange.held import SourceCheckpoint
from ledger.interchange.log_tree import roots
from ledger.proof import Checkpoint, b64, parse_key
from ledger.tree import Edge, edge_root

Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class Standing:
    """How a source stands to what is here of its log.

    Attributes:
        head: its checkpoint, signed by the trusted key.
        reach: highest of its positions that is here.
        last: the newest of its checkpoints that was taken over; None for none.
        edge: right edge of its tree at `reach`.
    """

    head: Checkpoint
    reach: int
    last: SourceCheckpoint | None
    edge: Edge


def standing(conn: Connection, source: Source, key: str, own_id: str) -> Standing:
    """How the source stands, once all of it is shown to go on from what is here; nothing is written.

    Args:
        conn: in a transaction.
        source: to push.
        key: text of the verifier key of its log.
        own_id: this ledger's id.
    Raises:
        DivergedLog: it shows another history than the one taken over before.
        PushRefused: only a part of it is there, or it does not lead to its own checkpoint.
        CheckpointError: its checkpoint is not signed by the key.
    """
    claim = source.claim
    head = checkpoint.verify(claim.note, key)
    if claim.filtered:
        raise PushRefused("a filtered export proves what is in it and not what is missing; allowed: the whole log up to a checkpoint")
    if claim.until != head.size:
        raise PushRefused(f"the range ends at position {claim.until}; allowed: where its checkpoint does, at {head.size}")
    if claim.ledger_id == own_id:
        raise PushRefused(f"source and target are both ledger {own_id}; a ledger is pushed to another one")
    taken = held.checkpoints(conn, claim.ledger_id)
    last = taken[-1] if taken else None
    reach = held.reach(conn, claim.ledger_id)
    if last is not None and parse_key(key).public_key != parse_key(last.key).public_key:
        raise PushRefused(f"the log of ledger {claim.ledger_id} was taken over under key {last.key}; seen {key}: its key may not change")
    if claim.since > reach:
        raise PushRefused(f"the range begins after position {claim.since}, and {reach} of its events are here; push those between first")
    if last is not None and last.head.origin != head.origin:
        _follow_forks(source.forks(), last, head, reach)
    _compare(conn, source, head, last, reach)
    return Standing(head, reach, last, held.edge_at(conn, claim.ledger_id, reach))


def _follow_forks(forks: Sequence[Fork], last: SourceCheckpoint, head: Checkpoint, reach: int) -> None:
    by_origin = {fork.origin: fork for fork in forks}
    origin = head.origin
    while origin != last.head.origin:
        fork = by_origin.pop(origin, None)
        if fork is None:
            raise DivergedLog(f"pushed is {_shown(head)}; here is {last}; the pushed log does not say that it forked from that name")
        if fork.common_size < reach:
            raise DivergedLog(
                f"pushed is {_shown(head)}, which forked from {fork.previous_origin} after {fork.common_size} events; here are {reach}"
                f" events up to {last}: those above {fork.common_size} are not in the pushed log"
            )
        origin = fork.previous_origin


def _compare(conn: Connection, source: Source, head: Checkpoint, last: SourceCheckpoint | None, reach: int) -> None:
    """None when the pushed leaves lead to the pushed checkpoint and begin with all that is here."""
    ledger_id, since = source.claim.ledger_id, source.claim.since
    sizes = {reach, head.size} | ({last.head.size} if last else set())
    if since:
        _, found = roots(Edge(), held.leaves(conn, ledger_id, 0, since), sizes)
    else:
        found = {}
    edge, more = roots(held.edge_at(conn, ledger_id, since), _exact(source, head.size - since), sizes)
    found |= more
    if (edge.size, edge_root(edge)) != (head.size, head.root):
        raise PushRefused(f"the pushed events lead to {edge.size} events, root {b64(edge_root(edge))}; their checkpoint is {_shown(head)}")
    if last is not None and last.head.size <= head.size and found[last.head.size] != last.head.root:
        raise DivergedLog(
            f"split view of one log: here is {last}; pushed is {_shown(head)}, whose first {last.head.size} events have root"
            f" {b64(found[last.head.size])}"
        )
    size = min(reach, head.size)
    here = edge_root(held.edge_at(conn, ledger_id, size))
    if found[size] != here:
        shown = last or f"a part of the log, {reach} events, no checkpoint yet"
        raise DivergedLog(
            f"split view of one log: here is {shown}, whose first {size} events have root {b64(here)}; pushed is {_shown(head)},"
            f" whose first {size} events have root {b64(found[size])}"
        )


def _exact(source: Source, count: int) -> Iterator[bytes]:
    for index, leaf in enumerate(source.leaves()):
        if index >= count:
            raise PushRefused(f"more than the {count} events that its checkpoint covers")
        yield leaf


def _shown(head: Checkpoint) -> str:
    return f"{head.origin}, {head.size} events, root {b64(head.root)}"
