"""The Merkle tree over a run of leaves: roots at given sizes, and a reader of tiles for proofs. Pure."""

from collections.abc import Iterable, Iterator
from itertools import islice

from ledger.tree import WIDTH, Edge, TileReader, edge_root, extend

BATCH = WIDTH * WIDTH


def roots(edge: Edge, leaves: Iterable[bytes], sizes: Iterable[int]) -> tuple[Edge, dict[int, bytes]]:
    """The edge after all leaves, and the root at each of the sizes that lie between the edge's and its end.

    Args:
        edge: of the tree before the leaves.
        leaves: in order.
        sizes: wanted.
    """
    stops = iter(sorted({size for size in sizes if size >= edge.size}))
    found: dict[int, bytes] = {}
    source = iter(leaves)
    stop = next(stops, None)
    while True:
        while stop == edge.size:
            found[edge.size] = edge_root(edge)
            stop = next(stops, None)
        chunk = list(islice(source, BATCH if stop is None else min(BATCH, stop - edge.size)))
        if not chunk:
            return edge, found
        edge, _ = extend(edge, chunk)


def tiles_of(leaves: Iterable[bytes]) -> tuple[Edge, TileReader]:
    """The edge of the tree over these leaves, and a reader of its tiles, all held in memory: 33 bytes a leaf."""
    edge, full = Edge(), {}
    for chunk in _chunks(iter(leaves)):
        edge, filled = extend(edge, chunk)
        full.update({(tile.level, tile.index): tile.hashes for tile in filled})

    def read(level: int, index: int, width: int) -> bytes:
        return full[level, index] if (level, index) in full else edge.tiles[level]

    return edge, read


def _chunks(leaves: Iterator[bytes]) -> Iterator[list[bytes]]:
    while chunk := list(islice(leaves, BATCH)):
        yield chunk
