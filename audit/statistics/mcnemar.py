"""Tasks that two arms decide differently, in both directions, with the exact test of McNemar."""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from audit.statistics import Estimate, Table
from audit.statistics._clusters import check_level, numbered
from ledger.errors import StatisticRefused


def mcnemar(
    table: Table, *, unit: str = "share", cluster: Sequence[str] = ("task",), axis: str | None = None, level: float = 0.95
) -> list[Estimate]:
    """`gain`, the share of pairs gained minus that lost, and `p_value` of the two-sided exact test that both flips are as likely.

    Pairs that agree say nothing of the difference. The interval is that of Clopper and Pearson for the share of gains among the flips,
    given their number. It takes pairs as independent, so several samples of one task make it too sure.

    Args:
        table: columns `before`, `after` (0, 1, or missing) and `task`.
        cluster: column within whose values pairs are not independent; more pairs than values of it are a caveat.
        level: of the interval.
    Raises:
        StatisticRefused: a value is neither 0 nor 1, or a column is missing.

    Source: McNemar 1947; exact form as in Agresti, Categorical Data Analysis, section 11.1.
    """
    check_level(level)
    before, after = table.numbers("before"), table.numbers("after")
    paired = ~np.isnan(before) & ~np.isnan(after)
    lost_rows, n = int((~paired).sum()), int(paired.sum())
    told = [f"{lost_rows} of {table.n} rows lack one side and are no pair"] if lost_rows else []
    before, after = before[paired], after[paired]
    if not np.isin(np.concatenate([before, after]), (0.0, 1.0)).all():
        raise StatisticRefused("columns 'before' and 'after' hold other values than 0 and 1; allowed: 0, 1 and missing")
    gained, lost = int(((before == 0) & (after == 1)).sum()), int(((before == 1) & (after == 0)).sum())
    both, neither = int(((before == 1) & (after == 1)).sum()), int(((before == 0) & (after == 0)).sum())
    counts = {"gained": float(gained), "lost": float(lost), "both": float(both), "neither": float(neither)}
    if n == 0:
        why = (*told, "there is no pair")
        return [Estimate(name, None, None, None, None, 0, "none", unit, axis, counts, why) for name in ("gain", "p_value")]
    flips = gained + lost
    if numbered(table.labels(next(iter(cluster), "task"))[paired])[0] < n:
        told.append("several pairs share a task: they are taken as independent, so the p-value is too small")
    if flips == 0:
        told.append("no task flipped: the two arms cannot be told apart here")
        return [
            Estimate("gain", 0.0, None, None, None, n, "none", unit, axis, counts, tuple(told)),
            Estimate("p_value", 1.0, None, None, None, 0, "exact_binomial", "probability", axis, counts, tuple(told)),
        ]
    exact = stats.binomtest(gained, flips, 0.5)
    share = exact.proportion_ci(level, method="exact")
    low, high = (flips / n * (2 * float(end) - 1) for end in (share.low, share.high))
    return [
        Estimate("gain", (gained - lost) / n, low, high, level, n, "clopper_pearson_of_flips", unit, axis, counts, tuple(told)),
        Estimate("p_value", float(exact.pvalue), None, None, None, flips, "exact_binomial", "probability", axis, counts, tuple(told)),
    ]
