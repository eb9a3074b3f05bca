"""Which whole rows go through the model together. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ledger.errors import UpdateRefused
from training.view import Bools, Ints

NO_PAIRS: Ints = np.zeros((0, 2), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """Whole rows that go through the model together, one after another.

    Attributes:
        rows_Q: indices of the rows in the batch.
        token_T: index in the batch of each token.
        row_T: index into `rows_Q` of each token.
        width: length of the longest row.
    """

    rows_Q: Ints
    token_T: Ints
    row_T: Ints
    width: int

    @property
    def places(self) -> int:
        """Places in the rectangle of rows × longest row, padding included."""
        return len(self.rows_Q) * self.width

    def predicted(self, wanted_T: Bools) -> Ints:
        """Indices along the micro-batch's T of the wanted tokens that have a token before them in their row."""
        follows_T = np.zeros(len(self.row_T), dtype=np.bool_)
        follows_T[1:] = self.row_T[1:] == self.row_T[:-1]
        return np.flatnonzero(wanted_T & follows_T)


def row_spans(row_T: Ints, rows: int) -> tuple[Ints, Ints]:
    """First token and length of each row.

    Raises:
        UpdateRefused: rows are not numbered 0 to `rows` - 1 in ascending order, each with at least one token.
    """
    length_Q = np.bincount(row_T, minlength=rows) if len(row_T) else np.zeros(rows, dtype=np.int64)
    if len(length_Q) > rows or (np.diff(row_T) < 0).any() or (length_Q == 0).any():
        raise UpdateRefused(
            f"rows along T are numbered {np.unique(row_T).tolist()[:8]}…; allowed: 0 to {rows - 1}, ascending, none without a token"
        )
    return np.concatenate([[0], np.cumsum(length_Q)[:-1]]).astype(np.int64), length_Q.astype(np.int64)


def units(rows: Ints, pairs_P2: Ints = NO_PAIRS) -> list[Ints]:
    """Rows that must stay together: rows joined by pairs, directly or through others, and every other row alone."""
    root = {int(row): int(row) for row in rows}

    def find(row: int) -> int:
        while root[row] != row:
            root[row] = root[root[row]]
            row = root[row]
        return row

    for left, right in pairs_P2.tolist():
        if left in root and right in root:
            root[find(right)] = find(left)
    together: dict[int, list[int]] = {}
    for row in root:
        together.setdefault(find(row), []).append(row)
    return [np.array(members, dtype=np.int64) for members in together.values()]


def pack(units_U: Sequence[Ints], length_Q: Ints, *, micro_tokens: int) -> list[Ints]:
    """Rows of each micro-batch: units in descending order of their longest row, as many as fit in `micro_tokens`, padding included.

    A unit that does not fit at all is a micro-batch of its own.
    """
    ordered = sorted(units_U, key=lambda unit: (-int(length_Q[unit].max()), int(unit[0])))
    packed: list[list[Ints]] = []
    rows = width = 0
    for unit in ordered:
        if packed and (rows + len(unit)) * width <= micro_tokens:
            packed[-1].append(unit)
            rows += len(unit)
        else:
            packed.append([unit])
            rows, width = len(unit), int(length_Q[unit].max())
    return [np.concatenate(members) for members in packed]


def shares(units_U: Sequence[Ints], length_Q: Ints, ranks: int) -> list[list[Ints]]:
    """Units of each rank: the longest first, each to the rank with the fewest tokens so far."""
    dealt: list[list[Ints]] = [[] for _ in range(ranks)]
    load = np.zeros(ranks, dtype=np.int64)
    for unit in sorted(units_U, key=lambda unit: (-int(length_Q[unit].sum()), int(unit[0]))):
        rank = int(load.argmin())
        dealt[rank].append(unit)
        load[rank] += int(length_Q[unit].sum())
    return dealt


def micro_batch(rows_Q: Ints, start_Q: Ints, length_Q: Ints) -> MicroBatch:
    """The rows as one micro-batch."""
    lengths = length_Q[rows_Q]
    row_T = np.repeat(np.arange(len(rows_Q)), lengths)
    offset_T = np.arange(len(row_T)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return MicroBatch(rows_Q, start_Q[rows_Q][row_T] + offset_T, row_T, int(lengths.max()))
