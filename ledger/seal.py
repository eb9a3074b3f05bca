"""Sealing: the one process that holds the key signs the tree over all ordered events. Writes tiles, checkpoints, files by the key.

A note is kept in the file beside the key before it can be seen anywhere; then it is committed to the database; then it goes to the
witness file. So whatever breaks off, the next start knows everything that may have been published, and never signs against it.
"""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import checkpoint, order, seal_files, tiles
from ledger.errors import CheckpointError, LedgerUnavailable, SealRefused, TreeError, WaitTimeout
from ledger.exclusive import exclusive
from ledger.ledger import LedgerHandle
from ledger.proof import Checkpoint, b64
from ledger.seal_files import SealFiles
from ledger.settings import Settings
from ledger.tree import Edge, edge_root

Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class Published:
    """A checkpoint that others may have seen: where it was found, its note, and what that says."""

    where: str
    note: str
    head: Checkpoint

    def __str__(self) -> str:
        return f"{self.where} has a checkpoint of {self.head.origin} with {self.head.size} events and root {b64(self.head.root)}"


class Sealer:
    """Signs checkpoints of one ledger while its connection holds the name `seal`; made by `sealer`.

    Attributes:
        origin: name of the log, and of the key.
    """

    def __init__(self, ledger: LedgerHandle, conn: Connection, files: SealFiles, key: Ed25519PrivateKey, origin: str) -> None:
        self.ledger, self.conn, self.files, self.key, self.origin = ledger, conn, files, key, origin
        self._edge: Edge | None = None

    @property
    def vkey(self) -> str:
        """The text of the verifier key, for those who check."""
        return checkpoint.vkey(self.origin, self.key.public_key())

    def seal(self) -> Checkpoint | None:
        """A checkpoint over everything committed before the call; None when the last one covers it already.

        Raises:
            SealRefused: the tree in the database is not that of its newest checkpoint.
            TreeError: a position is missing.
            LedgerUnavailable: the connection is gone, and with it the right to sign; a new sealer looks first at what was published.
        """
        try:
            return self._seal()
        except psycopg.OperationalError as error:
            raise LedgerUnavailable(f"cannot seal: {str(error).strip()}") from error

    def _seal(self) -> Checkpoint | None:
        order.barrier(self.ledger.pool)
        with self.conn.transaction():
            self.conn.execute("SET LOCAL synchronous_commit = on")
            before, size = newest(self.conn), ordered(self.conn)
            if before is not None and before.head.size == size and before.head.origin == self.origin:
                return None
            head, note, edge = self._extend(before, size)
            seal_files.write_signed(self.files.signed, note)
        self._edge = edge
        if self.files.witness is not None:
            seal_files.append_notes(self.files.witness, [note])
        return head

    def _extend(self, before: Published | None, size: int) -> tuple[Checkpoint, str, Edge]:
        """Tiles and the checkpoint row up to `size`, written in the caller's transaction."""
        sealed = 0 if before is None else before.head.size
        edge = self._edge if self._edge is not None and self._edge.size == sealed else tiles.edge_at(self.conn, sealed, sealed)
        if before is not None and edge_root(edge) != before.head.root:
            raise SealRefused(f"the tiles in the database lead to root {b64(edge_root(edge))}, but {before}; run `tally verify`")
        edge = tiles.grow(self.conn, edge, size, keep=True)
        head = Checkpoint(self.origin, size, edge_root(edge))
        note = checkpoint.sign(head, self.key)
        _insert(self.conn, head, note)
        return head, note, edge

    def reconcile(self) -> None:
        """Finish what a crash broke off: a note signed and not committed, or committed and not in the witness file.

        Raises:
            SealRefused: the database lies below a published checkpoint, or holds other events than one covers.
            CheckpointError: a kept note is not signed by this key.
        """
        order.barrier(self.ledger.pool)
        with self.conn.transaction():
            self.conn.execute("SET LOCAL synchronous_commit = on")
            found = published(self.conn, self.files, self.key)
            own = [item for item in found if item.head.origin == self.origin]
            before, size = newest(self.conn), ordered(self.conn)
            sealed = 0 if before is None else before.head.size
            refuse_conflict(self.conn, own, sealed, size)
            last = max(own, key=lambda item: item.head.size, default=None)
            if last is not None and last.head.size > sealed:
                tiles.grow(self.conn, tiles.edge_at(self.conn, sealed, sealed), last.head.size, keep=True)
                _insert(self.conn, last.head, last.note)
            if last is not None and seal_files.read_signed(self.files.signed) != last.note:
                seal_files.write_signed(self.files.signed, last.note)
        if self.files.witness is not None:
            self._bring_up(self.files)

    def _bring_up(self, files: SealFiles) -> None:
        assert files.witness is not None
        seen = {checkpoint.parse(note)[0].size for note in seal_files.read_notes(files.witness) if note.startswith(f"{self.origin}\n")}
        rows = self.conn.execute(
            "SELECT note FROM checkpoint WHERE origin = %s AND size > %s ORDER BY size", (self.origin, max(seen, default=0))
        ).fetchall()
        if rows:
            seal_files.append_notes(files.witness, [str(row[0]) for row in rows])


@contextmanager
def sealer(ledger: LedgerHandle, files: SealFiles, *, wait_s: float = 20.0) -> Iterator[Sealer]:
    """The only sealer of this ledger, ready to sign; the first one makes the key.

    Raises:
        TallyError: another process seals this ledger.
        SealRefused: signing would contradict what was published, or the key does not fit the ledger.
    """
    with exclusive(ledger, "seal", wait_s=wait_s, all_projects=True) as conn:
        key = ensure_key(conn, files)
        made = Sealer(ledger, conn, files, key, current_origin(ledger, published(conn, files, key)))
        made.reconcile()
        yield made


def seal_now(ledger: LedgerHandle, settings: Settings) -> Checkpoint:
    """The checkpoint that covers everything committed before the call, signed now unless it is there already.

    Raises:
        as `sealer`.
    """
    with sealer(ledger, seal_files.seal_files(settings)) as own:
        made = own.seal()
        last = newest(own.conn)
        assert last is not None
        return made or last.head


def wait_sealed(ledger: LedgerHandle, position: int, *, timeout_s: float = 30.0) -> Checkpoint:
    """The newest checkpoint, once it covers `position`. Another process seals.

    Raises:
        WaitTimeout: not sealed in time; it says nothing about what was written.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        with ledger.connection() as conn:
            last = newest(conn)
        size = 0 if last is None else last.head.size
        if last is not None and size >= position:
            return last.head
        if time.monotonic() > deadline:
            raise WaitTimeout(f"sealed up to position {size} after {timeout_s} s; wanted {position}; does `tally seal` run?")
        time.sleep(0.05)


def default_origin(ledger_id: str) -> str:
    """The name of a log that never forked."""
    return f"tallystick.local/{ledger_id}"


def fork_number(origin: str) -> int:
    """The number in the name of a fork; 0 where there is none."""
    match = re.search(r"/fork-([1-9][0-9]*)$", origin)
    return 0 if match is None else int(match[1])


def current_origin(ledger: LedgerHandle, found: Sequence[Published]) -> str:
    """The name that the log goes by: that of its latest fork.

    Raises:
        SealRefused: a kept checkpoint is of another ledger.
    """
    first = default_origin(ledger.ledger_id)
    for item in found:
        if item.head.origin not in (first, f"{first}/fork-{fork_number(item.head.origin)}"):
            raise SealRefused(f"{item}; this database holds {first}: name this ledger's own key, state and witness file")
    return max((item.head.origin for item in found), key=fork_number, default=first)


def newest(conn: Connection) -> Published | None:
    """The checkpoint row with the most events; None before the first seal."""
    row = conn.execute("SELECT origin, size, root, note FROM checkpoint ORDER BY size DESC, sealed_at DESC LIMIT 1").fetchone()
    return None if row is None else Published("the database", str(row[3]), Checkpoint(str(row[0]), int(row[1]), bytes(row[2])))


def published(conn: Connection, files: SealFiles, key: Ed25519PrivateKey) -> list[Published]:
    """The largest checkpoints of each place: the file beside the key, the witness file by name of the log, the database.

    Raises:
        CheckpointError: one of them is not signed by this key.
    """
    last, signed = newest(conn), seal_files.read_signed(files.signed)
    found = [] if signed is None else [(str(files.signed), signed)]
    if files.witness is not None:
        kept = [] if last is None else [last.note]
        seal_files.mend(files.witness, kept if signed is None else [*kept, signed])
        largest: dict[str, tuple[int, str]] = {}
        for note in seal_files.read_notes(files.witness):
            head = checkpoint.parse(note)[0]
            largest[head.origin] = max(largest.get(head.origin, (0, "")), (head.size, note))
        found += [(str(files.witness), note) for _, note in largest.values()]
    if last is not None:
        found.append(("the database", last.note))
    opened = [Published(where, note, seal_files.opened(note, key, where)) for where, note in found]
    if last is not None and opened[-1].head != last.head:
        raise CheckpointError(f"the database has a checkpoint whose note says other than its row: {opened[-1]}; run `tally verify`")
    return opened


def refuse_conflict(conn: Connection, found: Sequence[Published], sealed: int, size: int) -> None:
    """None when the database, sealed up to `sealed` and ordered up to `size`, holds what every one of these checkpoints covers.

    Raises:
        SealRefused: it does not; the message names both.
    """
    for item in sorted(found, key=lambda item: item.head.size):
        if item.head.size > size:
            raise SealRefused(
                f"{item}, but the database has {size} events in order: it lies below what was published, as after a restore or a failover;"
                " bring the missing events back, or go on under a new name with `tally seal --fork`"
            )
        try:
            root = tiles.root_at(conn, sealed, item.head.size)
        except TreeError as error:
            raise SealRefused(f"{item}, and the database cannot show its tree: {error}") from error
        if root != item.head.root:
            raise SealRefused(
                f"{item}, but the database's first {item.head.size} events have root {b64(root)}: they are not what was published;"
                " `tally verify` says where, and after a restore `tally seal --fork` goes on under a new name"
            )


def ensure_key(conn: Connection, files: SealFiles) -> Ed25519PrivateKey:
    """The signing key, made when nothing was ever sealed.

    Raises:
        SealRefused: it is missing though checkpoints exist.
    """
    if files.key.exists() or newest(conn) is not None or files.signed.exists() or (files.witness is not None and files.witness.exists()):
        return seal_files.read_key(files.key)
    return seal_files.make_key(files.key)


def ordered(conn: Connection) -> int:
    """The highest position that this connection sees."""
    row = conn.execute("SELECT position FROM order_step ORDER BY step DESC LIMIT 1").fetchone()
    return 0 if row is None else int(row[0])


def _insert(conn: Connection, head: Checkpoint, note: str) -> None:
    conn.execute("INSERT INTO checkpoint (origin, size, root, note) VALUES (%s, %s, %s, %s)", (head.origin, head.size, head.root, note))
