"""The root of the log, leaf by leaf: what shows that a copy holds the same events in the same order. Reads the database."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from ledger import tree

Connection = psycopg.Connection[Any]
BATCH = 10_000


@dataclass(frozen=True)
class Published:
    """A checkpoint that the log holds, and whether the leaves here lead to its root."""

    origin: str
    size: int
    root: str
    fits: bool


@dataclass(frozen=True)
class LogProof:
    """What identifies a log up to a position.

    Attributes:
        ledger_id: from its genesis.
        size: positions from 1 without a gap, each with its event.
        root: hex root over the leaves of these positions.
        checkpoint: the largest one within them; None when nothing was published.
    """

    ledger_id: str
    size: int
    root: str
    checkpoint: Published | None


def roots(leaves: Iterable[bytes], sizes: Sequence[int]) -> dict[int, bytes]:
    """The root after each of `sizes` leaves, and after all of them; sizes beyond the end are left out."""
    wanted, edge = set(sizes), tree.Edge()
    found = {0: tree.edge_root(edge)}
    pending: list[bytes] = []
    for leaf in leaves:
        pending.append(leaf)
        if edge.size + len(pending) in wanted or len(pending) == BATCH:
            edge, _ = tree.extend(edge, pending)
            pending = []
            if edge.size in wanted:
                found[edge.size] = tree.edge_root(edge)
    edge, _ = tree.extend(edge, pending)
    found[edge.size] = tree.edge_root(edge)
    return found


def prove(conn: Connection, upto: int | None = None) -> LogProof:
    """What the transaction of this connection sees of the log, up to position `upto` or to its end.

    A gap ends the log: positions above it do not count.
    """
    row = conn.execute("SELECT (SELECT ledger_id FROM ledger), (SELECT coalesce(max(position), 0) FROM event_order)").fetchone()
    assert row is not None
    end = int(row[1]) if upto is None else min(upto, int(row[1]))
    last = conn.execute(
        "SELECT origin, size, root FROM checkpoint WHERE size <= %s ORDER BY size DESC, sealed_at DESC LIMIT 1", (end,)
    ).fetchone()
    counted = _Counted()
    found = roots(counted.leaves(conn, end), [] if last is None else [int(last[1])])
    published = None if last is None else Published(last[0], int(last[1]), bytes(last[2]).hex(), found.get(int(last[1])) == bytes(last[2]))
    return LogProof(str(row[0]), counted.size, found[counted.size].hex(), published)


class _Counted:
    size = 0

    def leaves(self, conn: Connection, end: int) -> Iterable[bytes]:
        with conn.cursor(name="leaves") as cursor:
            cursor.itersize = BATCH
            cursor.execute(
                "SELECT o.position, e.leaf FROM event_order AS o JOIN event AS e USING (id) WHERE o.position <= %s ORDER BY o.position",
                (end,),
            )
            for position, leaf in cursor:
                if position != self.size + 1:
                    return
                self.size = position
                yield bytes(leaf)
