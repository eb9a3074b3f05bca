"""Masked tokens of which two log-probability columns are known. Pure."""

from dataclasses import dataclass

import numpy as np

from ledger.errors import MethodError
from training.diagnostics import Measured, UpdateColumns
from training.view import Floats, RolloutView


@dataclass(frozen=True, eq=False)
class Gap:
    """Differences along the N masked tokens at which both columns are known.

    Attributes:
        first_N, second_N: the two columns, nats.
        adv_N: advantages.
        caveats: what is missing.
    """

    first_N: Floats
    second_N: Floats
    adv_N: Floats
    caveats: tuple[str, ...]

    def measured(self, value: float, unit: str, *more: str) -> Measured:
        """`value` over the N tokens, or None where there are none."""
        n = len(self.first_N)
        return Measured(value if n else None, n, unit, self.caveats + more)


def gap(view: RolloutView, update: UpdateColumns, first: str, second: str) -> Gap:
    """Columns `first` and `second` on the masked tokens at which both are known; the others are counted in the caveats, never read as 0."""
    fits(view, update)
    missing = [name for name in (first, second) if name not in update.logprobs]
    if missing:
        none = np.zeros(0)
        return Gap(none, none, none, (f"no column {' and '.join(missing)}",))
    first_T, second_T = update.logprobs[first], update.logprobs[second]
    known_T = view.mask_T & np.isfinite(first_T) & np.isfinite(second_T)
    unknown = int(np.count_nonzero(view.mask_T & ~known_T))
    caveats: tuple[str, ...] = (f"{unknown} masked tokens left out: {first} or {second} unknown",) if unknown else ()
    if not known_T.any():
        caveats += ("no masked token has both",)
    return Gap(first_T[known_T], second_T[known_T], update.adv_T[known_T], caveats)


def fits(view: RolloutView, update: UpdateColumns) -> None:
    """Raises MethodError where a column of the update is not as long as the view's tokens."""
    columns = {"adv_T": update.adv_T, "weight_T": update.weight_T, **update.logprobs}
    wrong = [f"{name} {column.shape}" for name, column in columns.items() if column.shape != view.row_T.shape]
    if wrong:
        raise MethodError(f"shapes {', '.join(wrong)}; allowed: {view.row_T.shape}")
