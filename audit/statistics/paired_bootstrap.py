"""Mean gain over the same tasks by resampling tasks: the same tasks in both arms in each draw."""

from collections.abc import Sequence

from audit.statistics import Estimate, Table
from audit.statistics._clusters import check_draws, check_level, quantiles
from audit.statistics._pairs import differences


def paired_bootstrap(
    table: Table,
    *,
    unit: str = "value",
    cluster: Sequence[str] = ("task",),
    axis: str | None = None,
    level: float = 0.95,
    draws: int = 10_000,
    draw_seed: int = 0,
) -> list[Estimate]:
    """Mean of `after` minus `before` with a percentile interval; the control `share_not_above_zero` is that of draws at or below 0.

    It takes tasks as independent; with several seeds it resamples them as well. Nothing is assumed of the distribution, so it suits
    tokens and times, but few tasks make it too narrow.

    Args:
        table: columns `before`, `after` (numbers, NaN where missing), `task`, and `seed` where there are several trainings.
        cluster: named for the signature; the columns are `task` and `seed`.
        level: of the interval.
        draws: bootstrap draws.
        draw_seed: of the draws.
    Raises:
        StatisticRefused: a column is missing or holds no numbers.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13.
    """
    check_level(level), check_draws(draws)
    pairs = differences(table)
    if pairs.n == 0 or pairs.tasks < 2:
        why = "there is no pair" if pairs.n == 0 else "one task: there is nothing to resample"
        value = pairs.mean if pairs.n else None
        return [Estimate("mean_difference", value, None, None, None, pairs.n, "none", unit, axis, caveats=(*pairs.caveats, why))]
    drawn = pairs.drawn(draws=draws, draw_seed=draw_seed)
    low, high = quantiles(drawn, level)
    controls = {"tasks": float(pairs.tasks), "share_not_above_zero": float((drawn <= 0).mean())}
    return [Estimate("mean_difference", pairs.mean, low, high, level, pairs.n, "paired_bootstrap", unit, axis, controls, pairs.caveats)]
