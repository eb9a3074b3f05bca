"""Push and pull: another ledger's sealed log enters this one, event by event as it was hashed. Writes the target's database."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any, Literal, TypeVar

import psycopg

from ledger.errors import PushRefused
from ledger.interchange import held
from ledger.interchange.carried import CarriedBlob, CarriedEvent, CarriedStream, CarriedSubject, Progress, Source
from ledger.interchange.divergence import Standing, standing
from ledger.interchange.take import LOCK, Checked, checked, missing_blobs, take, take_blobs, take_subjects, take_tokens
from ledger.ledger import LedgerHandle
from ledger.proof import b64
from ledger.store import known_error
from ledger.tree import Edge, edge_root, extend

Connection = psycopg.Connection[Any]
TRIES = 6
T = TypeVar("T")
GROUP_BYTES = 16 * 1024 * 1024
Status = Literal["pushed", "nothing to push", "source is behind", "would push"]


@dataclass(frozen=True)
class Pushed:
    """What a push did, or would do.

    Attributes:
        status: in a word.
        ledger_id, origin: whose log.
        size: events that its checkpoint covers.
        root: base64.
        held: events of it that were here before.
        events: events that were not here before.
        kinds: those by kind, of a push that is only asked about.
        blobs, packs, staged_calls, keys: blobs, token packs, calls with staged tokens and subjects' keys that were not here before.
        destroyed: subjects whose keys are destroyed here because their source destroyed them.
        retries: transactions that were begun again after a deadlock.
    """

    status: Status
    ledger_id: str
    origin: str
    size: int
    root: str
    held: int
    events: int = 0
    kinds: tuple[tuple[str, int], ...] = ()
    blobs: int = 0
    packs: int = 0
    staged_calls: int = 0
    keys: int = 0
    destroyed: int = 0
    retries: int = 0


def push(source: Source, target: LedgerHandle, *, key: str, dry_run: bool = False, progress: Progress = lambda done, total: None) -> Pushed:
    """What was pushed. Whatever breaks it off, the next push goes on where this one ended.

    Args:
        source: the log to take over, up to its checkpoint.
        target: the ledger that it enters.
        key: text of the verifier key that signed the checkpoint, from elsewhere than the source.
        dry_run: check everything and write nothing.
        progress: called with the events done and to do.
    Raises:
        DivergedLog: the source shows another history than the one taken over before; both are named and nothing is written.
        PushRefused: the source is a part of a log, does not lead to its checkpoint, or holds what cannot be written here.
        CheckpointError: the checkpoint is not signed by the key.
    """
    with target.connection() as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        stand = standing(conn, source, key, target.ledger_id)
    head, reach = stand.head, stand.reach
    told = Pushed("pushed", source.claim.ledger_id, head.origin, head.size, b64(head.root), reach)
    if head.size < max(reach, stand.last.head.size if stand.last else 0):
        return replace(told, status="source is behind")
    if dry_run:
        kinds = source.kinds(reach) if head.size > reach else {}
        return replace(told, status="would push" if kinds else "nothing to push", events=head.size - reach, kinds=tuple(kinds.items()))
    return _Push(source, target, told).run(stand, key, progress)


class _Push:
    def __init__(self, source: Source, target: LedgerHandle, told: Pushed) -> None:
        self.source, self.target, self.told = source, target, told

    def run(self, stand: Standing, key: str, progress: Progress) -> Pushed:
        edge, reach, size = stand.edge, stand.reach, stand.head.size
        subjects = self.source.subjects()
        self._subjects([subject for subject in subjects if subject.destroyed_at is None])
        for batch in self.source.batches(reach):
            edge = self._batch(batch, edge, stand)
            progress(edge.size - reach, size - reach)
        self._tokens(stand.last.head.size if stand.last else 0)
        # A destroyed subject takes no more blobs, so that it is destroyed is noted after all of them.
        self._subjects([subject for subject in subjects if subject.destroyed_at is not None])
        if self.told.destroyed:
            with self.target.pool.connection() as conn:
                # As after `ledger.shred`: the old row stays in the table's file. A login that may not is only warned.
                conn.execute("VACUUM (FULL) subject")
        if stand.last is None or stand.last.head.size < size:
            self._write(lambda conn: self._note(conn, stand, key))
        changed = any(getattr(self.told, name) for name in ("events", "blobs", "packs", "staged_calls", "keys", "destroyed"))
        return self.told if changed or size > reach else replace(self.told, status="nothing to push")

    def _batch(self, events: Sequence[CarriedEvent], edge: Edge, stand: Standing) -> Edge:
        if [event.position for event in events] != list(range(edge.size + 1, edge.size + len(events) + 1)):
            raise PushRefused(f"positions {events[0].position} to {events[-1].position} do not follow position {edge.size} without a gap")
        ready = [checked(event) for event in events]
        if events[0].position == 1:
            first = events[0].fields
            if (first.kind, first.ledger_id) != ("LedgerCreated", self.told.ledger_id):
                raise PushRefused(f"{events[0]} is no LedgerCreated of ledger {self.told.ledger_id}: this is not its log")
        grown, _ = extend(edge, [event.leaf for event in events])
        if grown.size == stand.head.size and edge_root(grown) != stand.head.root:
            raise PushRefused("the events changed while they were pushed: they lead to another root than they did before")
        with self.target.connection() as conn:
            conn.execute("SELECT extend_partitions()")
        with self.target.connection() as conn:
            wanted = missing_blobs(conn, ready)
        if wanted:
            self._blobs(wanted)
        done = self._write(lambda conn: self._take(conn, ready))
        self.told = replace(self.told, events=self.told.events + done)
        return grown

    def _take(self, conn: Connection, ready: Sequence[Checked]) -> int:
        conn.execute("SELECT pg_advisory_xact_lock(%s, %s)", (LOCK, _lock(self.told.ledger_id)))
        here = held.reach(conn, self.told.ledger_id)
        left = [item for item in ready if item.carried.position > here]
        if not left:
            return 0
        if left[0].carried.position != here + 1:
            raise PushRefused(f"{here} events of this log are here, fewer than before; another process removed some")
        return take(conn, self.told.ledger_id, self.target.ledger_id, left)

    def _blobs(self, wanted: set[bytes]) -> None:
        group: list[CarriedBlob] = []
        for blob in self.source.blobs(wanted):
            group.append(blob)
            if sum(len(item.data) for item in group) >= GROUP_BYTES:
                self._blob_group(group)
                group = []
        if group:
            self._blob_group(group)

    def _blob_group(self, group: Sequence[CarriedBlob]) -> None:
        blobs = self._write(lambda conn: take_blobs(conn, self.told.ledger_id, self.target.ledger_id, group))
        self.told = replace(self.told, blobs=self.told.blobs + blobs)

    def _subjects(self, subjects: Sequence[CarriedSubject]) -> None:
        if subjects:
            keys, gone = self._write(lambda conn: take_subjects(conn, self.told.ledger_id, self.target.ledger_id, subjects))
            self.told = replace(self.told, keys=self.told.keys + keys, destroyed=self.told.destroyed + gone)

    def _tokens(self, after: int) -> None:
        with self.target.connection() as conn:
            rows = conn.execute(
                "SELECT DISTINCT h.ledger_id, n.project, n.name FROM token_live AS t JOIN stream_head AS h USING (stream_id)"
                " JOIN node AS n USING (node_id) WHERE h.ledger_id = %s",
                (self.told.ledger_id,),
            ).fetchall()
        for carried in self.source.streams(after, [(row[0], row[1], row[2]) for row in rows]):
            packs, staged = self._write(partial(self._stream, carried))
            self.told = replace(self.told, packs=self.told.packs + packs, staged_calls=self.told.staged_calls + staged)

    def _stream(self, carried: CarriedStream, conn: Connection) -> tuple[int, int]:
        return take_tokens(conn, self.told.ledger_id, self.target.ledger_id, carried)

    def _note(self, conn: Connection, stand: Standing, key: str) -> None:
        conn.execute(
            "INSERT INTO source_log (ledger_id, size, origin, key, root, note) VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            (self.told.ledger_id, stand.head.size, stand.head.origin, key.strip(), stand.head.root, self.source.claim.note),
        )

    def _write(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, once it is committed; a deadlock with a local append, which locks names in another order, is tried again."""
        for left in range(TRIES, 0, -1):
            try:
                with self.target.connection() as conn:
                    return work(conn)
            except psycopg.errors.DeadlockDetected:
                if left == 1:
                    raise
                self.told = replace(self.told, retries=self.told.retries + 1)
                time.sleep(0.05 * (TRIES - left + 1))
            except psycopg.Error as error:
                raise known_error(error) from error
        raise AssertionError


def _lock(ledger_id: str) -> int:
    return int.from_bytes(sha256(ledger_id.encode()).digest()[:4], "big", signed=True)
