"""Axes along which tasks are drawn, and how evenly a set of drafts lies on them. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from ledger.bundle import BundleDraft
from ledger.errors import ProposalError

Axes = Mapping[str, Sequence[str]]
Cell = dict[str, str]


@dataclass(frozen=True)
class Balance:
    """One value of one axis: how many drafts have it, their share, and the share that even draws aim at."""

    axis: str
    value: str
    count: int
    share: float
    aimed: float


def draw_cell(axes: Axes, rng: Random) -> Cell:
    """One value of every axis, each drawn on its own and evenly.

    Raises:
        ProposalError: an axis has no values, or one twice.
    """
    for axis, values in axes.items():
        if not values or len(set(values)) != len(values):
            raise ProposalError(f"axis {axis!r} has values {list(values)}; allowed: one or more, all different")
    return {axis: rng.choice(list(values)) for axis, values in axes.items()}


def balance(drafts: Sequence[BundleDraft], axes: Axes) -> list[Balance]:
    """The balance table of drafts whose provenance holds their cell: every value of every axis, those that nothing has included.

    Source: Tmax (arXiv 2606.23321), independent draws over declared axes; digest 30.
    """
    cells = [cell for draft in drafts if isinstance(cell := draft.provenance.get("axes"), Mapping)]
    rows = []
    for axis, values in axes.items():
        counts = Counter(cell.get(axis) for cell in cells)
        rows += [Balance(axis, value, counts[value], counts[value] / max(1, len(cells)), 1 / len(values)) for value in values]
    return rows


def off_balance(rows: Sequence[Balance]) -> float:
    """The largest difference between a value's share and the share aimed at, in [0, 1]."""
    return max((abs(row.share - row.aimed) for row in rows), default=0.0)
