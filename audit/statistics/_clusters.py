"""Intervals of a mean whose rows depend on each other within clusters. Pure."""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from audit.statistics import Estimate, Floats, Labels, Table
from ledger.errors import StatisticRefused

FEW_CLUSTERS = 30
"""Fewer clusters than this and both intervals tend to be too narrow."""
MOST_DRAWS = 1_000_000


def check_level(level: float) -> float:
    """`level`.

    Raises:
        StatisticRefused: it is no probability between 0 and 1.
    """
    if not 0 < level < 1:
        raise StatisticRefused(f"level is {level}; allowed: more than 0 and less than 1, such as 0.95")
    return level


def check_draws(draws: int, *, least: int = 100) -> int:
    """`draws`.

    Raises:
        StatisticRefused: too few for an interval's ends, or too many.
    """
    if not least <= draws <= MOST_DRAWS:
        raise StatisticRefused(f"draws is {draws}; allowed: {least} to {MOST_DRAWS}")
    return draws


def numbered(labels: Labels) -> tuple[int, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """How many distinct labels, and each row's number among them in the order of first appearance."""
    places: dict[object, int] = {}
    rows = np.array([places.setdefault(label, len(places)) for label in labels.tolist()], dtype=np.int64)
    return len(places), rows


def resampled(rng: np.random.Generator, clusters: int, draws: int) -> Floats:
    """How often each of so many clusters is drawn, with replacement, in each draw: draws × clusters."""
    return rng.multinomial(clusters, np.full(clusters, 1.0 / clusters), size=draws).astype(np.float64)


def quantiles(values: Floats, level: float) -> tuple[float, float]:
    """The ends of the percentile interval at `level`."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def cluster_bootstrap(value_n: Floats, labels: Labels, *, level: float, draws: int, draw_seed: int) -> tuple[float, float] | None:
    """The percentile interval of the mean over resampled clusters; None with fewer than two of them.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13; clusters as in Cameron, Gelbach and Miller 2008.
    """
    clusters, rows = numbered(labels)
    if clusters < 2:
        return None
    sums, sizes = np.bincount(rows, value_n, clusters), np.bincount(rows, minlength=clusters).astype(np.float64)
    weights = resampled(np.random.default_rng(draw_seed), clusters, draws)
    return quantiles((weights @ sums) / (weights @ sizes), level)


def cluster_robust(value_n: Floats, labels: Labels, *, level: float) -> tuple[float, float] | None:
    """The t interval of the mean from the sandwich variance over clusters, G / (G - 1) corrected, G - 1 degrees of freedom.

    None with fewer than two clusters. With one row a cluster it is the usual t interval.

    Source: Liang and Zeger 1986; the correction as in Cameron and Miller 2015, equation 11.
    """
    clusters, rows = numbered(labels)
    if clusters < 2:
        return None
    mean = float(value_n.mean())
    residual = np.bincount(rows, value_n - mean, clusters)
    variance = clusters / (clusters - 1) * float((residual**2).sum()) / len(value_n) ** 2
    half = float(stats.t.ppf((1 + level) / 2, clusters - 1)) * variance**0.5
    return mean - half, mean + half


def clustered_mean(
    table: Table, column: str, *, name: str, unit: str, cluster: Sequence[str], axis: str | None, level: float, draws: int, draw_seed: int
) -> list[Estimate]:
    """Estimates of the mean of a column, one an interval and a cluster column, the widest first; without `draws` only the robust ones.

    Rows whose value is missing are left out and counted.
    """
    check_level(level)
    value_n = table.numbers(column)
    known = ~np.isnan(value_n)
    value_n, n = value_n[known], int(known.sum())
    missing = () if n == table.n else (f"{table.n - n} of {table.n} rows have no {column} and are left out",)
    if n == 0:
        return [Estimate(name, None, None, None, None, 0, "none", unit, axis, caveats=(*missing, "there is nothing to measure"))]
    mean, found = float(value_n.mean()), list[Estimate]()
    for by in cluster:
        labels = table.labels(by)[known]
        clusters, _ = numbered(labels)
        told = (*missing, *_few(by, clusters))
        ends = {f"cluster_robust:{by}": cluster_robust(value_n, labels, level=level)}
        if draws:
            kept = cluster_bootstrap(value_n, labels, level=level, draws=check_draws(draws), draw_seed=draw_seed)
            ends[f"cluster_bootstrap:{by}"] = kept
        for method, interval in ends.items():
            low, high = (None, None) if interval is None else interval
            given = None if interval is None else level
            found.append(Estimate(name, mean, low, high, given, n, method, unit, axis, {"clusters": clusters}, told))
    return widest_first(found)


def widest_first(estimates: Sequence[Estimate]) -> list[Estimate]:
    """The estimates by the width of their intervals, the widest first; those of the same width stay in order."""
    return sorted(estimates, key=lambda estimate: -estimate.width)


def _few(by: str, clusters: int) -> tuple[str, ...]:
    if clusters < 2:
        return (f"one {by}: no interval can say how much another would differ",)
    return (
        (f"only {clusters} clusters by {by}: below {FEW_CLUSTERS} the interval tends to be too narrow",) if clusters < FEW_CLUSTERS else ()
    )
