"""Statistics: each takes a table of columns and gives estimates with intervals, controls and caveats. One file a statistic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ledger.errors import StatisticRefused
from ledger.methods import Family

__all__ = ["Estimate", "Floats", "Labels", "Statistic", "Table", "statistics"]

Floats = NDArray[np.float64]
Labels = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of one length n; a value that is missing is NaN in a column of numbers, never 0."""

    columns: Mapping[str, NDArray[Any]]

    def __post_init__(self) -> None:
        shapes = {name: column.shape for name, column in self.columns.items()}
        if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
            raise StatisticRefused(f"columns have the shapes {shapes}; allowed: one dimension and one length")

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> "Table":
        """The named columns of the rows; None becomes NaN where the other values are numbers or truth values."""
        return cls({name: _column([row[name] for row in rows]) for name in names})

    @property
    def n(self) -> int:
        """Number of rows."""
        return next((len(column) for column in self.columns.values()), 0)

    def numbers(self, name: str) -> Floats:
        """A column of numbers, NaN where missing.

        Raises:
            StatisticRefused: there is no such column, or it holds something else or an infinity.
        """
        column = self._column(name)
        if column.dtype.kind not in "fiub" or np.isinf(column.astype(np.float64)).any():
            raise StatisticRefused(
                f"column {name!r} holds {column.dtype} with values such as {column[:3].tolist()}; allowed: finite numbers"
            )
        return column.astype(np.float64)

    def labels(self, name: str) -> Labels:
        """A column as labels.

        Raises:
            StatisticRefused: there is no such column.
        """
        return self._column(name)

    def rows(self, keep: NDArray[np.bool_]) -> "Table":
        """The rows for which `keep` is True."""
        return Table({name: column[keep] for name, column in self.columns.items()})

    def _column(self, name: str) -> NDArray[Any]:
        if name not in self.columns:
            raise StatisticRefused(f"the table has no column {name!r}; it has {', '.join(self.columns) or 'none'}")
        return self.columns[name]


@dataclass(frozen=True)
class Estimate:
    """One number with its interval.

    Attributes:
        name: what is estimated.
        value: None where it cannot be taken; the reason is in `caveats`.
        low, high: of the interval; None where there is none.
        level: of the interval, such as 0.95; None without one.
        n: rows or pairs that it was taken over.
        method: how the interval was taken.
        unit: what the number is measured in.
        axis: what the arms of a comparison were matched on; None for a single arm.
        controls: further numbers to read it by: clusters, other intervals' ends, p-values.
        caveats: what to know before using it.
    """

    name: str
    value: float | None
    low: float | None
    high: float | None
    level: float | None
    n: int
    method: str
    unit: str
    axis: str | None = None
    controls: Mapping[str, float] = field(default_factory=dict)
    caveats: tuple[str, ...] = ()

    @property
    def width(self) -> float:
        """Length of the interval; -1 without one, so that any interval is wider than none."""
        return -1.0 if self.low is None or self.high is None else self.high - self.low

    def as_json(self) -> dict[str, Any]:
        """The estimate as a JSON object."""
        return {**self.__dict__, "controls": dict(self.controls), "caveats": list(self.caveats)}


class Statistic(Protocol):
    """The signature of every statistic; parameters of its own are keyword-only as well."""

    def __call__(self, table: Table, *, unit: str = ..., cluster: Sequence[str] = ..., axis: str | None = ...) -> list[Estimate]:
        """Estimates, the one to report first.

        Args:
            table: the rows; each statistic says which columns it needs.
            unit: what the numbers are measured in.
            cluster: columns within whose values rows depend on each other.
            axis: what the arms of a comparison were matched on.
        """
        ...


statistics: Family[Statistic] = Family("audit.statistics")


def _column(values: list[Any]) -> NDArray[Any]:
    present = [value for value in values if value is not None]
    if all(isinstance(value, bool | int | float) for value in present):
        return np.array([np.nan if value is None else float(value) for value in values], dtype=np.float64)
    return np.array(values, dtype=object)
