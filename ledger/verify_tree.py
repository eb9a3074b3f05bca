"""Verification of the tree: positions in order, leaf by leaf, against tiles and checkpoints. Reads the database."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg

from ledger.proof import b64
from ledger.tiles import hashes_of
from ledger.tree import HASH_BYTES, HEIGHT, WIDTH, Edge, FullTile, edge_root, extend
from ledger.verify_order import StepPass
from ledger.verify_report import Problem

Connection = psycopg.Connection[Any]
BATCH = 16_384
NOTHING = bytes(HASH_BYTES)
"""Stands for the leaf of a position that holds no event, so that the tiles after it still fall into place."""
_SHOWN = 20


@dataclass
class TreePass:
    """Goes over all positions once.

    Attributes:
        sealed: size that the tiles in the database were written for.
        sizes: of checkpoints, for which roots are wanted.
        roots: size to root, of those sizes that are here.
        size: number of positions so far.
        problems: of what was looked at so far.
    """

    conn: Connection
    sealed: int
    sizes: Iterable[int]
    roots: dict[int, bytes] = field(default_factory=dict)
    size: int = 0
    tiles: int = 0
    problems: list[Problem] = field(default_factory=list)

    def chunks(self) -> Iterator[int]:
        """Number of positions done, after each chunk of them."""
        steps, edge, ends = StepPass(self.conn), Edge(), sorted({*self.sizes, self.sealed} - {0}, reverse=True)
        dense = True
        while dense and (rows := self._rows()):
            leaves = []
            for position, ident, leaf in rows:
                leaves += self._gap(position)
                if position != self.size + 1:
                    dense = False
                    break
                self.size = position
                steps.feed(position, ident)
                leaves.append(self._leaf(position, leaf))
            edge = self._grow(edge, leaves, ends)
            yield self.size
        steps.close(self.size)
        self.problems += steps.problems
        self._extra()

    def _rows(self) -> list[tuple[int, int, bytes | None]]:
        with self.conn.cursor(binary=True) as cursor:
            return cursor.execute(
                "SELECT o.position, o.id, e.leaf FROM (SELECT position, id FROM event_order WHERE position > %s ORDER BY position LIMIT %s)"
                " AS o LEFT JOIN event AS e USING (id) ORDER BY o.position",
                (self.size, BATCH),
            ).fetchall()

    def _gap(self, position: int) -> list[bytes]:
        """Stand-ins for missing positions before this one; a wide gap is not filled, and ends the tree there."""
        missing = position - self.size - 1
        if missing == 0:
            return []
        self.problems.append(Problem(self.size + 1, f"position {position}", f"it follows {self.size or 'nothing'}"))
        if missing > BATCH:
            return []
        self.size += missing
        return [NOTHING] * missing

    def _leaf(self, position: int, leaf: bytes | None) -> bytes:
        if leaf is None:
            self.problems.append(Problem(position, f"position {position}", "its event is not here"))
        elif len(leaf) != HASH_BYTES:
            self.problems.append(Problem(position, f"position {position}", f"its leaf has {len(leaf)} bytes; needed: {HASH_BYTES}"))
        else:
            return bytes(leaf)
        return NOTHING

    def _grow(self, edge: Edge, leaves: list[bytes], ends: list[int]) -> Edge:
        """The edge with these leaves, stopping at every size whose root is wanted."""
        at, filled = 0, list[FullTile]()
        while at < len(leaves):
            take = len(leaves) - at
            if ends and ends[-1] - edge.size <= take:
                take = ends.pop() - edge.size
                edge, more = extend(edge, leaves[at : at + take])
                self.roots[edge.size] = edge_root(edge)
            else:
                edge, more = extend(edge, leaves[at : at + take])
            if edge.size <= self.sealed:
                filled += more
            at += take
        self._compare(filled)
        return edge

    def _compare(self, filled: list[FullTile]) -> None:
        self.tiles += len(filled)
        for level in sorted({tile.level for tile in filled}):
            here = [tile for tile in filled if tile.level == level]
            stored = {
                int(row[0]): (bytes(row[1]), bytes(row[2]))
                for row in self.conn.execute(
                    "SELECT index, root, hashes FROM tree_tile WHERE level = %s AND index BETWEEN %s AND %s",
                    (level, here[0].index, here[-1].index), binary=True,
                )
            }  # fmt: skip
            for tile in here:
                held = stored.get(tile.index)
                if held != (tile.root, tile.hashes):
                    self.problems += _differences(tile, held)

    def _extra(self) -> None:
        for level, index in self.conn.execute(
            "SELECT level, index FROM tree_tile WHERE level < 0 OR level > 6 OR index < 0 OR index >= (%s::bigint >> (8 * (level + 1)))"
            " ORDER BY 1, 2 LIMIT %s",
            (self.sealed, _SHOWN),
        ):
            self.problems.append(
                Problem(None, f"tile {level}/{index}", f"a tree of {self.sealed} events, which are sealed, has no such tile")
            )


def _differences(tile: FullTile, held: tuple[bytes, bytes] | None) -> Iterator[Problem]:
    first = (WIDTH * tile.index << HEIGHT * tile.level) + 1
    subject = f"tile {tile.level}/{tile.index}, from position {first}"
    if held is None:
        yield Problem(first, subject, "it is not here")
        return
    root, hashes = held
    if len(hashes) != len(tile.hashes):
        yield Problem(first, subject, f"it has {len(hashes)} bytes; needed: {len(tile.hashes)}")
    elif tile.level == 0:
        apart = [n for n, (one, other) in enumerate(zip(hashes_of(hashes), hashes_of(tile.hashes), strict=True)) if one != other]
        for n in apart[:_SHOWN]:
            yield Problem(
                first + n, f"position {first + n}", "the event here is not the one that was sealed there: the tile has another leaf"
            )
    elif hashes != tile.hashes:
        yield Problem(first, subject, "its hashes are not those of the level below")
    if root != tile.root:
        yield Problem(first, subject, f"its root is {b64(root)}; its events lead to {b64(tile.root)}")
