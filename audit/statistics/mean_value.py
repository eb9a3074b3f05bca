"""Mean of any column, such as reward, tokens or tool calls, with intervals clustered by bundle and seed."""

from collections.abc import Sequence

from audit.statistics import Estimate, Table
from audit.statistics._clusters import clustered_mean


def mean_value(
    table: Table,
    *,
    unit: str = "value",
    cluster: Sequence[str] = ("bundle",),
    axis: str | None = None,
    column: str = "value",
    level: float = 0.95,
    draws: int = 0,
    draw_seed: int = 0,
) -> list[Estimate]:
    """The mean of a column, the widest interval first. It takes clusters as independent, and their means as near normal.

    Args:
        table: `column` (numbers, NaN where missing) and those that `cluster` names.
        draws: bootstrap draws; 0 gives the cluster-robust interval alone.
        draw_seed: of the draws.
    Raises:
        StatisticRefused: a column is missing or holds no numbers.

    Source: Liang and Zeger 1986.
    """
    return clustered_mean(table, column, name="mean", unit=unit, cluster=cluster, axis=axis, level=level, draws=draws, draw_seed=draw_seed)
