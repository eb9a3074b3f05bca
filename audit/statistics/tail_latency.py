"""Mean and upper quantiles of a time, with the number of values that they rest on."""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from audit.statistics import Estimate, Floats, Table
from audit.statistics._clusters import check_level, clustered_mean, numbered
from ledger.errors import StatisticRefused

QUANTILES = (0.5, 0.95, 0.99)


def tail_latency(
    table: Table,
    *,
    unit: str = "s",
    cluster: Sequence[str] = ("bundle",),
    axis: str | None = None,
    level: float = 0.95,
) -> list[Estimate]:
    """`mean`, `p50`, `p95` and `p99` of column `latency_s`.

    A quantile is the smallest value that at least that share of the values does not exceed; its interval lies between two order
    statistics and takes the values as independent, whatever their distribution. Where n is too small for one of its ends, there is
    no such end.

    Args:
        table: `latency_s` (seconds, NaN where nobody measured it) and the columns that `cluster` names, for the mean.
        level: of the intervals.
    Raises:
        StatisticRefused: a time is negative, or a column is missing.

    Source: David and Nagaraja, Order Statistics, section 7.1.
    """
    latency_n = table.numbers("latency_s")
    known = np.sort(latency_n[~np.isnan(latency_n)])
    if len(known) and known[0] < 0:
        raise StatisticRefused(f"column 'latency_s' holds {known[0]}; allowed: 0 or more seconds")
    mean = clustered_mean(table, "latency_s", name="mean", unit=unit, cluster=cluster, axis=axis, level=level, draws=0, draw_seed=0)
    missing = mean[0].caveats if mean and mean[0].value is None else ()
    dependent = any(numbered(table.labels(by)[~np.isnan(latency_n)])[0] < len(known) for by in cluster)
    told = ("values of one cluster are taken as independent",) if dependent else ()
    return [*mean[:1], *(_quantile(known, share, unit=unit, axis=axis, level=level, caveats=(*missing, *told)) for share in QUANTILES)]


def _quantile(known: Floats, share: float, *, unit: str, axis: str | None, level: float, caveats: tuple[str, ...]) -> Estimate:
    name, n = f"p{round(100 * share)}", len(known)
    if n == 0:
        return Estimate(name, None, None, None, None, 0, "none", unit, axis, caveats=caveats)
    tail = (1 - check_level(level)) / 2
    value = float(known[int(np.ceil(share * n - 1e-9)) - 1])
    # P(at most k - 1 values lie below the quantile) is the binomial's; the k-th smallest is then a bound of it.
    below, above = int(stats.binom.ppf(tail, n, share)), int(stats.binom.ppf(1 - tail, n, share)) + 1
    low = float(known[below - 1]) if below >= 1 else None
    high = float(known[above - 1]) if above <= n else None
    told = () if high is not None else (f"n = {n} is too small for an upper end of {name} at level {level:g}",)
    return Estimate(name, value, low, high, level, n, "order_statistics", unit, axis, {}, (*caveats, *told))
