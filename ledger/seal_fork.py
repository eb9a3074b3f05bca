"""A log whose database lost sealed events, as by a restore, goes on under a new name and says what was lost. Writes the ledger."""

from collections.abc import Iterable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import order, seal_files, store, tiles
from ledger.errors import SealRefused
from ledger.events import LogForked
from ledger.exclusive import exclusive
from ledger.ledger import LedgerHandle
from ledger.proof import EMPTY_ROOT, Checkpoint, b64
from ledger.seal import Connection, Published, Sealer, current_origin, default_origin, ensure_key, fork_number, ordered, published
from ledger.seal_files import SealFiles
from ledger.tree import Edge, edge_root, extend


def fork(ledger: LedgerHandle, files: SealFiles, *, wait_s: float = 20.0) -> Checkpoint:
    """The first checkpoint under the new name; the event `LogForked` that it covers names the last common checkpoint and the lost one.

    The tree goes on over all positions: checkpoints up to the common one stay valid.

    Raises:
        SealRefused: the database agrees with all that was published; or it was changed and not restored, which no fork may hide.
    """
    with exclusive(ledger, "seal", wait_s=wait_s, all_projects=True) as conn:
        key = ensure_key(conn, files)
        order.barrier(ledger.pool)
        found = published(conn, files, key)
        previous = current_origin(ledger, found)
        found += [_opened(item, key) for item in _all_kept(conn, files)]
        lost, common = _compare(conn, found, previous)
        number = 1 + max(fork_number(item.head.origin) for item in found)
        origin = f"{default_origin(ledger.ledger_id)}/fork-{number}"
        body = LogForked(
            ledger_id=ledger.ledger_id, fork=number, origin=origin, previous_origin=previous, common_size=common.size,
            common_root=common.root.hex(), lost_size=lost.size, lost_root=lost.root.hex(),
        )  # fmt: skip
        with ledger.connection() as writing:
            store.append(writing, ledger.ledger_id, "ledger", [ledger.new(body)])
        made = Sealer(ledger, conn, files, key, origin).seal()
        assert made is not None
        return made


def roots(conn: Connection, sizes: Iterable[int]) -> dict[int, bytes]:
    """Size to the root over that many positions, from leaves alone; sizes above the number of positions are left out."""
    found: dict[int, bytes] = {}
    edge = Edge()
    for size in sorted(set(sizes)):
        while edge.size < size:
            batch = [leaf for _, leaf in tiles.leaves(conn, edge.size, min(size, edge.size + tiles.BATCH))]
            if not batch:
                return found
            edge, _ = extend(edge, batch)
        if edge.size == size:
            found[size] = edge_root(edge)
    return found


def _all_kept(conn: Connection, files: SealFiles) -> list[tuple[str, str]]:
    rows = [("the database", str(row[0])) for row in conn.execute("SELECT note FROM checkpoint ORDER BY size")]
    return rows + ([] if files.witness is None else [(str(files.witness), note) for note in seal_files.read_notes(files.witness)])


def _opened(item: tuple[str, str], key: Ed25519PrivateKey) -> Published:
    return Published(*item, seal_files.opened(item[1], key, item[0]))


def _compare(conn: Connection, found: list[Published], origin: str) -> tuple[Checkpoint, Checkpoint]:
    """The largest lost checkpoint of this name, and the largest common one of any."""
    size = ordered(conn)
    sealed = max((item.head.size for item in found if item.where == "the database"), default=0)
    here = roots(conn, [*(item.head.size for item in found), size])
    if here.get(size) != tiles.root_at(conn, sealed, size):
        raise SealRefused("the tiles in the database are not those of its events: it was changed, not restored; restore a backup first")
    agreeing = [item.head for item in found if here.get(item.head.size) == item.head.root]
    apart = [item for item in found if here.get(item.head.size) != item.head.root]
    common = max(agreeing, key=lambda head: head.size, default=Checkpoint(origin, 0, EMPTY_ROOT))
    changed = next((item for item in apart if item.where == "the database" or item.head.size <= common.size), None)
    if changed is not None:
        raise SealRefused(
            f"{changed}, but its events have root {b64(here.get(changed.head.size, EMPTY_ROOT))}: the database was changed, not restored;"
            " restore a backup first"
        )
    lost = [item.head for item in apart if item.head.origin == origin]
    if not lost:
        raise SealRefused(f"the database agrees with every checkpoint of {origin}: there is nothing to fork from; run `tally seal`")
    return max(lost, key=lambda head: head.size), common
