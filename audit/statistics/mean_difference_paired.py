"""Mean gain over the same tasks and several seeds, with the wider of a seed-level t and a seed × task bootstrap interval."""

from collections.abc import Sequence
from dataclasses import replace

from scipy import stats

from audit.statistics import Estimate, Floats, Table
from audit.statistics._clusters import check_draws, check_level, widest_first
from audit.statistics._pairs import differences


def mean_difference_paired(
    table: Table,
    *,
    unit: str = "share",
    cluster: Sequence[str] = ("task", "seed"),
    axis: str | None = None,
    level: float = 0.95,
    draws: int = 10_000,
    draw_seed: int = 0,
) -> list[Estimate]:
    """Mean of `after` minus `before`, the widest interval first.

    The t interval takes the seeds' mean gains as independent and near normal: it says how other trainings would come out on these very
    tasks. The bootstrap resamples seeds and tasks, each whole: it takes both as drawn from more of their kind. Of a single seed there is
    neither; what is left is an interval over tasks, and a caveat.

    Args:
        table: columns `before`, `after` (numbers, NaN where missing), `task`, and `seed` where there are several trainings. Several
            rows of one seed and task are samples, and count as often as they occur.
        cluster: named for the signature; the columns are `task` and `seed`.
        level: of the intervals.
        draws: bootstrap draws.
        draw_seed: of the draws.
    Raises:
        StatisticRefused: a column is missing or holds no numbers.

    Source: Student 1908; two-way resampling as in Owen, The pigeonhole bootstrap, 2007.
    """
    check_level(level), check_draws(draws)
    pairs = differences(table)
    name = "mean_difference"
    if pairs.n == 0:
        return [Estimate(name, None, None, None, None, 0, "none", unit, axis, caveats=(*pairs.caveats, "there is no pair"))]
    single = pairs.seeds == 1
    told = (*pairs.caveats, *(("one seed: the interval is over tasks and says nothing of another training",) if single else ()))
    if pairs.alike:
        told = (*told, "every pair differs by the same: neither interval can show what was never seen")
    controls = {"seeds": float(pairs.seeds), "tasks": float(pairs.tasks)}
    blank = Estimate(name, pairs.mean, None, None, None, pairs.n, "none", unit, axis, controls, told)
    if single and pairs.tasks == 1:
        return [replace(blank, caveats=(*told, "one task and one seed: there is no interval"))]
    low, high = pairs.bootstrap(level=level, draws=draws, draw_seed=draw_seed)
    drawn = replace(blank, low=low, high=high, level=level, method="task_bootstrap" if single else "seed_task_bootstrap")
    parts = (pairs.sum_ST / pairs.count_ST)[0] if single else pairs.sum_ST.sum(axis=1) / pairs.count_ST.sum(axis=1)
    low, high = t_interval(parts, level=level)
    spread = replace(blank, low=low, high=high, level=level, method="task_t" if single else "seed_t")
    return widest_first([drawn, spread])


def t_interval(values: Floats, *, level: float) -> tuple[float, float]:
    """Student's t interval of the mean of at least two values."""
    n = len(values)
    half = float(stats.t.ppf((1 + level) / 2, n - 1)) * float(values.std(ddof=1)) / n**0.5
    return float(values.mean()) - half, float(values.mean()) + half
