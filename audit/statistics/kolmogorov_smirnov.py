"""How far apart two distributions are, such as the lengths of rollouts that were dropped and of those that were kept."""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from audit.statistics import Estimate, Table
from audit.statistics._clusters import numbered
from ledger.errors import StatisticRefused

FEW = 20


def kolmogorov_smirnov(
    table: Table,
    *,
    unit: str = "share",
    cluster: Sequence[str] = ("bundle",),
    axis: str | None = None,
) -> list[Estimate]:
    """`ks_distance` (largest gap of the two distribution functions), `p_value`, and `median_difference` (second group minus first).

    The p-value takes all values as independent and without ties; with ties it is too large, with rows that depend on each other too small.
    It tells whether two distributions differ, not whether the difference matters: read the distance.

    Args:
        table: `value` (numbers, NaN where missing), `group` (exactly two, such as `kept` and `dropped`; the first row's is the first), and
            the first of the columns that `cluster` names, where it is there.
    Raises:
        StatisticRefused: there are not two groups, or a column is missing.

    Source: Smirnov 1939; Hodges 1958.
    """
    value, group = table.numbers("value"), table.labels("group")
    known = ~np.isnan(value)
    lost = int((~known).sum())
    told = [f"{lost} of {table.n} rows have no value and are left out"] if lost else []
    names = list(dict.fromkeys(group.tolist()))
    if len(names) != 2:
        raise StatisticRefused(f"column 'group' holds {names[:4]}; allowed: exactly two groups")
    first, second = (value[known & (group == name)] for name in names)
    sizes = {f"n:{name}": float(len(part)) for name, part in zip(names, (first, second), strict=True)}
    n = int(known.sum())
    if not len(first) or not len(second):
        why = (*told, f"group {names[0] if not len(first) else names[1]!r} has no value")
        return [Estimate(name, None, None, None, None, n, "none", unit, axis, sizes, why) for name in ("ks_distance", "p_value")]
    told += (
        [f"a group has {min(len(first), len(second))} values: only large distances can be seen"]
        if min(len(first), len(second)) < FEW
        else []
    )
    told += ["values are tied: the p-value is too large"] if len(np.unique(value[known])) < n else []
    by = next((name for name in cluster if name in table.columns), None)
    if by is not None and numbered(table.labels(by)[known])[0] < n:
        told.append(f"rows of one {by} are taken as independent: the p-value is too small")
    tested = stats.ks_2samp(first, second)
    shift = float(np.median(second) - np.median(first))
    controls = {**sizes, "at": float(tested.statistic_location)}
    return [
        Estimate("ks_distance", float(tested.statistic), None, None, None, n, "two_sample", unit, axis, controls, tuple(told)),
        Estimate("p_value", float(tested.pvalue), None, None, None, n, "two_sample", "probability", axis, controls, tuple(told)),
        Estimate("median_difference", shift, None, None, None, n, "medians", "value", axis, sizes, tuple(told)),
    ]
