"""All lineage as numbered arrays: read from packed segments of the edge table, which are added to as the log grows. Writes that cache."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from ledger.ledger import LedgerHandle

Ids = NDArray[np.int64]
Numbers = NDArray[np.int32]
Codes = NDArray[np.uint8]
Mask = NDArray[np.bool_]

SEGMENT_EVENTS = 4_000_000
"""Most positions of one segment, which bounds what is held while it is packed."""
_ID, _PAIR, _WEIGHT = np.dtype("<i8"), np.dtype(">i8"), np.dtype(">f8")
_LABELS = 256
# One row a label: what it says of all its edges is written once, and they come packed, so nothing is decoded row by row.
_EDGES = """SELECT coalesce(split_part(n.name, '-', 1), 'unknown') || ' ' || e.relation AS label, e.weight IS NOT NULL,
  string_agg(int8send(e.child) || int8send(e.parent), ''::bytea), string_agg(float8send(e.weight), ''::bytea)
FROM event_order AS o JOIN edge AS e USING (id) LEFT JOIN node AS n ON n.node_id = e.child
WHERE o.position > %(since)s AND o.position <= %(upto)s AND e.id BETWEEN
  (SELECT min(id) FROM event_order WHERE position > %(since)s AND position <= %(upto)s) AND
  (SELECT max(id) FROM event_order WHERE position > %(since)s AND position <= %(upto)s)
GROUP BY 1, 2 ORDER BY 1, 2"""
_COLUMNS = "upto, since, first_node, edges, nodes, children, parents, labels, label_names, weighted, weights"


@dataclass(frozen=True)
class Graph:
    """Every edge up to a position. E = edges, N = nodes, L = labels; a node's number is its place in `ids_N`.

    Attributes:
        noun_N: place in `nouns` of each node's noun; 0, which is empty, for one that no edge starts at.
        label_E: place in `labels` of each edge.
        labels: noun of the child and relation.
        weighted: places of the edges that have a weight, with `weights`.
    """

    position: int
    ids_N: Ids
    noun_N: Codes
    nouns: tuple[str, ...]
    child_E: Numbers
    parent_E: Numbers
    label_E: Codes
    labels: tuple[tuple[str, str], ...]
    weighted: Numbers
    weights: NDArray[np.float64]

    def number(self, node: int) -> int | None:
        """The number of a node id; None when no edge names it."""
        found = np.flatnonzero(self.ids_N == node)
        return int(found[0]) if len(found) else None

    def is_noun(self, noun: str) -> Mask:
        """Which nodes have this noun, shape (N,)."""
        found: Mask = self.noun_N == (self.nouns.index(noun) if noun in self.nouns else _LABELS - 1)
        return found

    def has_label(self, *relations: str) -> Mask:
        """Which edges have one of these relations, shape (E,)."""
        found: Mask = np.array([relation in relations for _, relation in self.labels], dtype=np.bool_)[self.label_E]
        return found

    def reached(self, start: int, keep_E: Mask | None = None) -> Numbers:
        """Numbers of everything that came from node number `start`, itself left out, over the kept edges or over all."""
        child, parent = (self.child_E, self.parent_E) if keep_E is None else (self.child_E[keep_E], self.parent_E[keep_E])
        size = len(self.ids_N)
        # Only this search needs them, and every command would wait for the import.
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import breadth_first_order

        edges = coo_array((np.ones(len(child)), (parent, child)), shape=(size, size))
        # Edges stated twice do no harm in a search, and finding them would take a sort.
        edges.has_canonical_format = True
        found: Numbers = breadth_first_order(edges.tocsr(), start, directed=True, return_predecessors=False)
        return found[1:]

    def by_noun(self, nodes: Numbers) -> dict[str, int]:
        """Noun to number of these nodes, sorted by noun."""
        counted = np.bincount(self.noun_N[nodes], minlength=len(self.nouns))
        return {noun: int(n) for noun, n in sorted(zip(self.nouns, counted, strict=True)) if n}


def load(ledger: LedgerHandle) -> Graph:
    """The graph of everything that was committed before the call."""
    catch_up(ledger)
    with ledger.connection() as conn, conn.cursor(binary=True) as cursor:
        rows = cursor.execute(f"SELECT {_COLUMNS} FROM lineage_segment ORDER BY upto").fetchall()
    labels: dict[str, int] = {}
    codes, weighted, edges = [np.empty(0, np.uint8)], [np.empty(0, np.int32)], 0
    for row in rows:
        place = np.array([labels.setdefault(name, len(labels)) for name in row[8]], dtype=np.uint8)
        codes.append(place[np.frombuffer(row[7], np.uint8)])
        weighted.append(np.frombuffer(row[9], "<i4") + np.int32(edges))
        edges += row[3]
    names = tuple((noun, relation) for noun, _, relation in (name.partition(" ") for name in labels))
    nouns = ("", *sorted({noun for noun, _ in names}))
    noun_of_label = np.array([nouns.index(noun) for noun, _ in names], dtype=np.uint8)
    ids, child, label = _joined(rows, 4, "<i8"), _joined(rows, 5, "<i4"), np.concatenate(codes)
    noun_N = np.zeros(len(ids), np.uint8)
    noun_N[child] = noun_of_label[label] if len(label) else 0
    position = rows[-1][0] if rows else 0
    return Graph(
        position, ids, noun_N, nouns, child, _joined(rows, 6, "<i4"), label, names, np.concatenate(weighted), _joined(rows, 10, "<f8")
    )


def catch_up(ledger: LedgerHandle) -> int:
    """Position up to which edges are packed: all that was committed before the call.

    A new segment takes the place of the last one as long as that covers no more positions than it does, so there are few, and each edge is
    packed a logarithmic number of times.
    """
    upto = ledger.barrier()
    with ledger.connection() as conn:
        known = conn.execute("SELECT upto FROM lineage_segment ORDER BY upto DESC LIMIT 1").fetchone()
    while known is None or known[0] < upto:
        with ledger.connection() as conn:
            conn.execute("LOCK TABLE lineage_segment IN SHARE ROW EXCLUSIVE MODE")
            known = (_extend(conn, upto),)
    return upto


def rebuild(ledger: LedgerHandle) -> int:
    """As `catch_up`, from nothing."""
    with ledger.connection() as conn:
        conn.execute("DELETE FROM lineage_segment")
    return catch_up(ledger)


def _extend(conn: psycopg.Connection[Any], high: int) -> int:
    spans = conn.execute("SELECT upto, since FROM lineage_segment ORDER BY upto").fetchall()
    last = spans[-1][0] if spans else 0
    if last >= high:
        return int(last)
    since, upto = last, min(high, last + SEGMENT_EVENTS)
    while spans and spans[-1][0] - spans[-1][1] <= upto - since and upto - spans[-1][1] <= SEGMENT_EVENTS:
        since = spans.pop()[1]
    conn.execute("DELETE FROM lineage_segment WHERE upto > %s", (since,))
    with conn.cursor(binary=True) as cursor:
        earlier = cursor.execute("SELECT first_node, nodes FROM lineage_segment ORDER BY upto").fetchall()
        rows = cursor.execute(_EDGES, {"since": since, "upto": upto}).fetchall()
        packed = _packed(rows, [(first, np.frombuffer(nodes, _ID)) for first, nodes in earlier])
        places = ", ".join(["%b"] * (len(packed) + 2))
        cursor.execute(f"INSERT INTO lineage_segment ({_COLUMNS}) VALUES ({places})", (upto, since, *packed))
    return upto


def _packed(rows: list[Any], earlier: list[tuple[int, Ids]]) -> tuple[Any, ...]:
    """The columns of a segment after `since`, from the edges of each label and the nodes of the segments before."""
    pairs = np.frombuffer(b"".join(row[2] for row in rows), _PAIR).astype(_ID)
    sizes = [len(row[2]) // (2 * _PAIR.itemsize) for row in rows]
    distinct, place = np.unique(pairs, return_inverse=True)
    number = np.full(len(distinct), -1, np.int32)
    for first, nodes in earlier:
        at = np.searchsorted(nodes, distinct)
        hit = nodes[np.minimum(at, len(nodes) - 1)] == distinct if len(nodes) else np.zeros(len(distinct), np.bool_)
        number[hit] = first + at[hit]
    new = np.flatnonzero(number < 0)
    first_node = sum(len(nodes) for _, nodes in earlier)
    number[new] = first_node + np.arange(len(new), dtype=np.int32)
    child, parent = number[place].reshape(-1, 2).T
    names = list(dict.fromkeys(row[0] for row in rows))
    if len(names) >= _LABELS:
        raise OverflowError(f"{len(names)} nouns with relations; allowed: up to {_LABELS - 1}")
    labels = np.repeat(np.array([names.index(row[0]) for row in rows], np.uint8), sizes)
    weighted = np.flatnonzero(np.repeat(np.array([row[1] for row in rows], np.bool_), sizes)).astype("<i4")
    weights = np.frombuffer(b"".join(row[3] or b"" for row in rows), _WEIGHT).astype("<f8")
    return (
        first_node, len(child), distinct[new].tobytes(), np.ascontiguousarray(child, "<i4").tobytes(),
        np.ascontiguousarray(parent, "<i4").tobytes(), labels.tobytes(), names, weighted.tobytes(), weights.tobytes(),
    )  # fmt: skip


def _joined(rows: list[Any], column: int, dtype: str) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *(np.frombuffer(row[column], dtype) for row in rows)])
