"""Share of rollouts that passed, with Wilson's interval and intervals clustered by bundle and seed."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from audit.statistics import Estimate, Table
from audit.statistics._clusters import check_level, clustered_mean, numbered, widest_first
from ledger.errors import StatisticRefused


def success_rate(
    table: Table,
    *,
    unit: str = "share",
    cluster: Sequence[str] = ("bundle",),
    axis: str | None = None,
    level: float = 0.95,
    draws: int = 2000,
    draw_seed: int = 0,
) -> list[Estimate]:
    """The share of 1 in column `passed`, the widest interval first; then all are cut off at 0 and 1.

    Wilson's interval takes the rows as independent; it is widened to the number of clusters where every row says the same, because
    resampling cannot show what was never seen. The clustered ones take clusters as independent and rows within one as not.

    Args:
        table: columns `passed` (0, 1 or missing) and those that `cluster` names.
        level: of the intervals.
        draws: bootstrap draws; 0 leaves the bootstrap out.
        draw_seed: of the draws.
    Raises:
        StatisticRefused: a value is neither 0 nor 1, or a column is missing.

    Source: Wilson 1927; clusters as in `_clusters`.
    """
    passed_n = table.numbers("passed")
    known = passed_n[~np.isnan(passed_n)]
    if not np.isin(known, (0.0, 1.0)).all():
        raise StatisticRefused(f"column 'passed' holds {sorted(set(known.tolist()) - {0.0, 1.0})[:3]}; allowed: 0, 1 and missing")
    found = clustered_mean(
        table, "passed", name="success_rate", unit=unit, cluster=cluster, axis=axis, level=level, draws=draws, draw_seed=draw_seed
    )
    if len(known) == 0:
        return found
    fewest = min((numbered(table.labels(by)[~np.isnan(passed_n)])[0] for by in cluster), default=len(known))
    constant = known.min() == known.max()
    size = fewest if constant else len(known)
    low, high = wilson(float(known.mean()) * size, size, level=level)
    told = (f"every row says the same; Wilson's interval is over the {size} clusters",) if constant and size < len(known) else ()
    dependent = ("rows of one cluster are taken as independent",) if fewest < len(known) and not constant else ()
    missing = tuple(note for note in (found[0].caveats if found else ()) if "have no passed" in note)
    plain = Estimate(
        "success_rate", float(known.mean()), low, high, level, len(known), "wilson", unit, axis, {"passed": float(known.sum())},
        (*missing, *told, *dependent),
    )  # fmt: skip
    first, *others = map(_within, widest_first([*found, plain]))
    return [replace(first, controls={**first.controls, "wilson_low": low, "wilson_high": high}), *others]


def _within(estimate: Estimate) -> Estimate:
    """The estimate with an interval that ends where a share does."""
    if estimate.low is None or estimate.high is None:
        return estimate
    return replace(estimate, low=max(0.0, estimate.low), high=min(1.0, estimate.high))


def wilson(passed: float, n: int, *, level: float) -> tuple[float, float]:
    """Wilson's score interval of a share.

    Args:
        passed: successes, from 0 to `n`.
        n: trials, at least 1.
    """
    z = float(stats.norm.ppf((1 + check_level(level)) / 2))
    share = passed / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)
