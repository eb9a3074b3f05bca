"""The Merkle tree as the database holds it: full tiles, and leaves by position. Reads and writes the database."""

from collections.abc import Iterable
from typing import Any

import psycopg

from ledger.errors import TreeError
from ledger.tree import HASH_BYTES, WIDTH, Edge, FullTile, TileReader, edge_root, extend, read_edge

Connection = psycopg.Connection[Any]
BATCH = 65_536
"""Leaves read at a time: 256 full tiles."""


def reader(conn: Connection) -> TileReader:
    """Reads tiles: a full one from its row, a partial one from the roots of the level below, or from leaves. Needs sealed sizes only."""

    def read(level: int, index: int, width: int) -> bytes:
        if width == WIDTH:
            row = conn.execute("SELECT hashes FROM tree_tile WHERE level = %s AND index = %s", (level, index)).fetchone()
            if row is None:
                raise TreeError(f"tile {level}/{index} is not here; it is full and so must be")
            return bytes(row[0])
        first = WIDTH * index
        if level == 0:
            return b"".join(leaf for _, leaf in leaves(conn, first, first + width))
        rows = conn.execute(
            "SELECT root FROM tree_tile WHERE level = %s AND index >= %s AND index < %s ORDER BY index", (level - 1, first, first + width)
        ).fetchall()
        return b"".join(bytes(row[0]) for row in rows)

    return read


def leaves(conn: Connection, low: int, high: int) -> list[tuple[int, bytes]]:
    """Position and leaf of the ordered events with a position in (low, high]."""
    rows = conn.execute(
        "SELECT o.position, e.leaf FROM event_order AS o JOIN event AS e USING (id) WHERE o.position > %s AND o.position <= %s"
        " ORDER BY o.position",
        (low, high),
    ).fetchall()
    return [(int(row[0]), bytes(row[1])) for row in rows]


def grow(conn: Connection, edge: Edge, size: int, *, keep: bool) -> Edge:
    """The right edge of the tree grown to `size` leaves; the same edge when it has them already.

    Args:
        keep: write the tiles that are filled, in the caller's transaction.
    Raises:
        TreeError: the positions up to there are not all in the database.
    """
    while edge.size < size:
        upper = min(size, edge.size + BATCH)
        batch = leaves(conn, edge.size, upper)
        if [position for position, _ in batch] != list(range(edge.size + 1, upper + 1)):
            gap = next((wanted for wanted, (seen, _) in enumerate(batch, edge.size + 1) if seen != wanted), edge.size + len(batch) + 1)
            raise TreeError(f"position {gap} holds no event, and {size} are ordered; run `tally verify`")
        edge, filled = extend(edge, [leaf for _, leaf in batch])
        if keep:
            write(conn, filled)
    return edge


def edge_at(conn: Connection, sealed: int, size: int) -> Edge:
    """The right edge of the tree of `size` leaves: from tiles up to `sealed`, the size that they were written for, from leaves above it."""
    return grow(conn, read_edge(reader(conn), min(sealed, size)), size, keep=False)


def root_at(conn: Connection, sealed: int, size: int) -> bytes:
    """The root over the first `size` positions; as for `edge_at`."""
    return edge_root(edge_at(conn, sealed, size))


def write(conn: Connection, filled: Iterable[FullTile]) -> None:
    """Store full tiles, in the caller's transaction."""
    with conn.cursor() as cursor, cursor.copy("COPY tree_tile (level, index, root, hashes) FROM STDIN (FORMAT binary)") as stream:
        stream.set_types(["int2", "int8", "bytea", "bytea"])
        for tile in filled:
            stream.write_row((tile.level, tile.index, tile.root, tile.hashes))


def hashes_of(data: bytes) -> list[bytes]:
    """The hashes in a tile."""
    return [data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)]
