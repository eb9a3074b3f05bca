"""Gain of a chain of training stages, split into the part of each stage; the parts add up to the total."""

from collections.abc import Sequence

import numpy as np

from audit.statistics import Estimate, Floats, Table
from audit.statistics._clusters import check_draws, check_level, numbered, quantiles, resampled
from ledger.errors import StatisticRefused

_ROUNDING = 1e-9


def increments(
    table: Table,
    *,
    unit: str = "share",
    cluster: Sequence[str] = ("task", "seed"),
    axis: str | None = None,
    level: float = 0.95,
    draws: int = 10_000,
    draw_seed: int = 0,
) -> list[Estimate]:
    """`total`, then `increment:<stage>` and `share:<stage>` of every stage but the first.

    Each stage's value is the mean over the tasks that all stages have with every seed, so that the parts add up; without a column `task`
    it is the stage's one value, and there are no intervals. Each draw resamples seeds and tasks, the same for all stages.
    A part is what its stage did after those before it: in another order it could be another number.

    Args:
        table: columns `stage` (in the order of training), `value`, and `task` and `seed` where intervals are wanted. A column `claimed`
            holds increments as somebody states them, NaN at the first stage; they are checked against the values.
        cluster: named for the signature; the columns are `task` and `seed`.
        level: of the intervals.
        draws: bootstrap draws.
        draw_seed: of the draws.
    Raises:
        StatisticRefused: fewer than two stages, a stage that skips supervised training, values that are missing, or claimed increments
            that are not the differences of the values.

    Source: the survey's reading rule P1: 28.88 / 37.00 / 41.88 is 8.12 of SFT and 4.88 of RL, 13.00 in all.
    """
    check_level(level), check_draws(draws)
    stages = list(dict.fromkeys(map(str, table.labels("stage").tolist())))
    if len(stages) < 2:
        raise StatisticRefused(f"stages are {stages}; allowed: two or more, the first one the base")
    if "rl" in stages and "sft" not in stages[: stages.index("rl")]:
        raise StatisticRefused(f"stages are {stages}; allowed: 'sft' before 'rl', or its gain would be counted as that of RL")
    value_KST, caveats = _cells(table, stages)
    value_K = value_KST.mean(axis=(1, 2))
    _check_claims(table, stages, value_K)
    n = value_KST[0].size if "task" in table.columns else len(stages)
    ends = _drawn(value_KST, draws, draw_seed)
    method = "task_bootstrap" if value_KST.shape[1] == 1 else "seed_task_bootstrap"
    total = float(value_K[-1] - value_K[0])

    def estimate(name: str, value: float | None, drawn: Floats | None, kind: str, notes: tuple[str, ...]) -> Estimate:
        low, high = (None, None) if drawn is None or not len(drawn) else quantiles(drawn, level)
        given = None if low is None else level
        return Estimate(name, value, low, high, given, n, "none" if low is None else method, kind, axis, {}, notes)

    found = [estimate("total", total, None if ends is None else ends[-1] - ends[0], unit, caveats)]
    for place, stage in enumerate(stages[1:], 1):
        part = float(value_K[place] - value_K[place - 1])
        found.append(estimate(f"increment:{stage}", part, None if ends is None else ends[place] - ends[place - 1], unit, caveats))
    for place, stage in enumerate(stages[1:], 1):
        none = abs(total) <= _ROUNDING
        notes = (*caveats, *(("the total is 0: there is nothing to take a share of",) if none else ()))
        found.append(estimate(f"share:{stage}", None if none else found[place].value / total, None, "share of the total", notes))  # type: ignore[operator]
    return found


def _cells(table: Table, stages: Sequence[str]) -> tuple[Floats, tuple[str, ...]]:
    """The mean value by stage, seed and task, of the tasks that every stage has with every seed."""
    value_n, stage_n = table.numbers("value"), np.array([stages.index(str(name)) for name in table.labels("stage").tolist()])
    if "task" not in table.columns:
        if np.isnan(value_n).any() or len(value_n) != len(stages):
            raise StatisticRefused(
                f"{len(value_n)} values for {len(stages)} stages, {int(np.isnan(value_n).sum())} missing; allowed: one each"
            )
        return value_n[:, None, None], ()
    known = ~np.isnan(value_n)
    tasks, task_n = numbered(table.labels("task"))
    seeds, seed_n = numbered(table.labels("seed") if "seed" in table.columns else np.zeros(table.n))
    sums, counts = np.zeros((len(stages), seeds, tasks)), np.zeros((len(stages), seeds, tasks))
    np.add.at(sums, (stage_n[known], seed_n[known], task_n[known]), value_n[known])
    np.add.at(counts, (stage_n[known], seed_n[known], task_n[known]), 1.0)
    kept = counts.min(axis=(0, 1)) > 0
    if not kept.any():
        raise StatisticRefused(f"none of {tasks} tasks was measured at every stage of {', '.join(stages)}")
    told = [] if kept.all() else [f"{int((~kept).sum())} of {tasks} tasks were not measured at every stage and are left out"]
    told += ["one seed: the intervals are over tasks and say nothing of another training"] if seeds == 1 else []
    return sums[:, :, kept] / counts[:, :, kept], tuple(told)


def _drawn(value_KST: Floats, draws: int, draw_seed: int) -> Floats | None:
    """The stages' values in each draw, stages × draws; None where there is one task alone."""
    _, seeds, tasks = value_KST.shape
    if tasks < 2:
        return None
    rng = np.random.default_rng(draw_seed)
    weight_DT = resampled(rng, tasks, draws)
    weight_DS = resampled(rng, seeds, draws) if seeds > 1 else np.ones((draws, 1))
    return np.stack([((weight_DS @ value_ST) * weight_DT).sum(axis=1) / (seeds * tasks) for value_ST in value_KST])


def _check_claims(table: Table, stages: Sequence[str], value_K: Floats) -> None:
    if "claimed" not in table.columns:
        return
    claimed_n, stage_n = table.numbers("claimed"), table.labels("stage").tolist()
    for place, stage in enumerate(stages[1:], 1):
        said = [float(claimed) for claimed, name in zip(claimed_n, stage_n, strict=True) if name == stage and not np.isnan(claimed)]
        real = float(value_K[place] - value_K[place - 1])
        wrong = [claimed for claimed in said if abs(claimed - real) > 1e-6 * max(1.0, abs(real))]
        if wrong:
            raise StatisticRefused(f"stage {stage!r} is claimed to have added {wrong[0]:g}; its values differ by {real:g}")
