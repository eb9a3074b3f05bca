"""The Merkle tree of the log, appended and proved from tiles of 256 hashes. Pure.

Node (h, i) covers leaves i·2^h to (i+1)·2^h - 1. Tile (level, index) holds the nodes of height 8·level from 256·index to 256·index + 255.
Full tiles never change. The right edge, at most 255 hashes a level, is what a tree is resumed from.

Source: RFC 9162 section 2.1; C2SP tlog-tiles.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256

from ledger.errors import TreeError
from ledger.proof import EMPTY_ROOT, node_hash

HEIGHT = 8
WIDTH = 1 << HEIGHT
HASH_BYTES = 32
TILE_BYTES = WIDTH * HASH_BYTES

TileReader = Callable[[int, int, int], bytes]
"""(level, index, width) → at least the first `width` hashes of that tile, concatenated; more is cut off. Width 256 asks for a full tile."""


@dataclass(frozen=True)
class FullTile:
    """A tile that will not change any more.

    Attributes:
        root: hash of the node above it, which is hash `index` of the level above.
        hashes: its 256 hashes, concatenated.
    """

    level: int
    index: int
    root: bytes
    hashes: bytes


@dataclass(frozen=True)
class Edge:
    """The right edge of a tree: its number of leaves and, by level, the 0 to 255 hashes of the partial tile, concatenated."""

    size: int = 0
    tiles: tuple[bytes, ...] = ()


def tile_width(size: int, level: int, index: int) -> int:
    """Number of hashes, 0 to 256, that tile (level, index) holds in a tree of `size` leaves."""
    return max(0, min(WIDTH, (size >> HEIGHT * level) - WIDTH * index))


def extend(edge: Edge, leaves: Iterable[bytes]) -> tuple[Edge, list[FullTile]]:
    """The edge after appending leaves, and the tiles that they filled: lower levels first, by index.

    Args:
        leaves: leaf hashes of 32 bytes.
    Raises:
        TreeError: a leaf has another length.
    """
    added = list(leaves)
    wrong = next((leaf for leaf in added if len(leaf) != HASH_BYTES), None)
    if wrong is not None:
        raise TreeError(f"leaf hash of {len(wrong)} bytes; allowed: {HASH_BYTES}")
    size, level, carried = edge.size + len(added), 0, b"".join(added)
    tiles: list[bytes] = list(edge.tiles)
    filled: list[FullTile] = []
    while carried:
        held = tiles[level] if level < len(tiles) else b""
        first = edge.size >> HEIGHT * (level + 1)
        hashes = held + carried
        full = len(hashes) // TILE_BYTES * TILE_BYTES
        roots = []
        for start in range(0, full, TILE_BYTES):
            tile = hashes[start : start + TILE_BYTES]
            roots.append(_fold(tile))
            filled.append(FullTile(level, first + start // TILE_BYTES, roots[-1], tile))
        tiles[level : level + 1] = [hashes[full:]]
        level, carried = level + 1, b"".join(roots)
    return Edge(size, tuple(tiles)), filled


def edge_root(edge: Edge) -> bytes:
    """The root of the tree with this right edge; SHA-256 of nothing for the empty tree."""
    root = None
    for hashes in edge.tiles:
        count, end = len(hashes) // HASH_BYTES, len(hashes)
        while count:
            low = count & -count
            node = _fold(hashes[end - low * HASH_BYTES : end])
            root = node if root is None else node_hash(node, root)
            count, end = count - low, end - low * HASH_BYTES
    return EMPTY_ROOT if root is None else root


def read_edge(read: TileReader, size: int) -> Edge:
    """The right edge of the tree of `size` leaves: one partial tile a level."""
    tiles = []
    for level in range(-(-size.bit_length() // HEIGHT)):
        index, width = divmod(size >> HEIGHT * level, WIDTH)
        tiles.append(_read(read, size, level, index) if width else b"")
    return Edge(size, tuple(tiles))


def root(read: TileReader, size: int) -> bytes:
    """The root of the tree of the first `size` leaves."""
    return edge_root(read_edge(read, size))


def inclusion(read: TileReader, index: int, size: int) -> list[bytes]:
    """The inclusion proof of leaf `index` in the tree of the first `size` leaves: siblings from the leaf upwards.

    Raises:
        TreeError: there is no such leaf.
    Source: RFC 9162 section 2.1.3.1.
    """
    if not 0 <= index < size:
        raise TreeError(f"leaf {index} of a tree of {size} leaves; allowed: 0 to {size - 1}")
    nodes = _Nodes(read, size)
    path, start, end = [], 0, size
    while end - start > 1:
        split = start + _left_width(end - start)
        if index < split:
            path.append(nodes.hash_of(split, end))
            end = split
        else:
            path.append(nodes.hash_of(start, split))
            start = split
    return path[::-1]


def consistency(read: TileReader, old: int, new: int) -> list[bytes]:
    """The proof that the tree of the first `new` leaves begins with that of the first `old`; empty when these are equal or `old` is 0.

    Raises:
        TreeError: `old` is larger than `new`.
    Source: RFC 9162 section 2.1.4.1.
    """
    if not 0 <= old <= new:
        raise TreeError(f"consistency from size {old} to {new}; allowed: 0 <= old <= new")
    if old in (0, new):
        return []
    nodes = _Nodes(read, new)
    path, start, end = [], 0, new
    while end != old:
        split = start + _left_width(end - start)
        if old <= split:
            path.append(nodes.hash_of(split, end))
            end = split
        else:
            path.append(nodes.hash_of(start, split))
            start = split
    if start > 0:
        path.append(nodes.hash_of(start, end))
    return path[::-1]


class _Nodes:
    """Hashes over ranges of leaves of one tree, each tile read once."""

    def __init__(self, read: TileReader, size: int) -> None:
        self._source, self._size = read, size
        self._tiles: dict[tuple[int, int], bytes] = {}

    def hash_of(self, start: int, end: int) -> bytes:
        count = end - start
        if count & (count - 1):
            split = start + _left_width(count)
            return node_hash(self.hash_of(start, split), self.hash_of(split, end))
        level, height = divmod(count.bit_length() - 1, HEIGHT)
        index, offset = divmod(start >> HEIGHT * level, WIDTH)
        if (level, index) not in self._tiles:
            self._tiles[level, index] = _read(self._source, self._size, level, index)
        return _fold(self._tiles[level, index][offset * HASH_BYTES : (offset + (1 << height)) * HASH_BYTES])


def _read(read: TileReader, size: int, level: int, index: int) -> bytes:
    width = tile_width(size, level, index)
    hashes = read(level, index, width)
    if len(hashes) < width * HASH_BYTES or len(hashes) % HASH_BYTES:
        raise TreeError(f"tile {level}/{index} of a tree of {size} leaves has {len(hashes)} bytes; needed: {width} hashes of {HASH_BYTES}")
    return hashes[: width * HASH_BYTES]


def _left_width(count: int) -> int:
    """The largest power of two below `count`."""
    return 1 << (count - 1).bit_length() - 1


def _fold(hashes: bytes) -> bytes:
    """The root over a power of two of concatenated hashes."""
    while len(hashes) > HASH_BYTES:
        hashes = b"".join([sha256(b"\x01" + hashes[at : at + 64]).digest() for at in range(0, len(hashes), 64)])
    return hashes
