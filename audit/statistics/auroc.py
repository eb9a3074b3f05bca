"""How well a score ranks successes above failures, with and without what the depth and length of a rollout alone would tell."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from audit.statistics import Estimate, Floats, Labels, Table
from audit.statistics._clusters import FEW_CLUSTERS, check_draws, check_level, numbered, quantiles, resampled
from ledger.errors import StatisticRefused

FEW_OF_A_CLASS = 10
_CHUNK = 200


def auroc(
    table: Table,
    *,
    unit: str = "probability",
    cluster: Sequence[str] = ("bundle",),
    axis: str | None = None,
    level: float = 0.95,
    draws: int = 2000,
    draw_seed: int = 0,
) -> list[Estimate]:
    """`auroc`; `auroc:texture` and `auroc:residual` where depth or length is there; `auroc:entropy` and `auroc:within` where they can be.

    `texture` ranks by depth and log(1 + length) alone, fitted to the outcome; `residual` by what is left of the score once a least-squares
    fit on the same two is taken out. A score that only knows how long a rollout is has a residual near 0.5. `within` compares only rows of
    one task. The interval is DeLong's where every cluster has one row, else that of resampled clusters; both take clusters as independent.

    Args:
        table: `score` (higher means success), `label` (0 or 1), the columns that `cluster` names, and where they are known `depth` (steps),
            `length` (content tokens), `entropy` (mean token entropy; the baseline ranks by its negative) and `task`.
        level: of the intervals.
        draws: bootstrap draws.
        draw_seed: of the draws.
    Raises:
        StatisticRefused: a label is neither 0 nor 1, or a column is missing.

    Source: DeLong, DeLong and Clarke-Pearson 1988; the control as in arXiv 2610.18614, texture control and token-entropy baseline.
    """
    check_level(level), check_draws(draws)
    score, label = table.numbers("score"), table.numbers("label")
    features = [name for name in ("depth", "length") if name in table.columns]
    further = [table.numbers(name) for name in (*features, *(["entropy"] if "entropy" in table.columns else []))]
    known = ~np.asarray(np.isnan(np.stack([score, label, *further])).any(axis=0), dtype=np.bool_)
    if not np.isin(label[known], (0.0, 1.0)).all():
        raise StatisticRefused(f"column 'label' holds {sorted(set(label[known].tolist()) - {0.0, 1.0})[:3]}; allowed: 0, 1 and missing")
    kept, lost = table.rows(known), int((~known).sum())
    told = [f"{lost} of {table.n} rows lack a value and are left out"] if lost else []
    score, label = score[known], label[known]
    by = next(iter(cluster), None)
    labels = kept.labels(by) if by is not None else np.arange(kept.n)
    clusters = numbered(labels)[0]
    told += (
        [f"only {clusters} clusters by {by}: below {FEW_CLUSTERS} the interval tends to be too narrow"] if clusters < FEW_CLUSTERS else []
    )
    ones = int(label.sum())
    if 0 < min(ones, kept.n - ones) < FEW_OF_A_CLASS:
        told.append(f"only {min(ones, kept.n - ones)} rows of one class: the value moves by much with each of them")

    def estimate(name: str, ranked: Floats, *notes: str) -> Estimate:
        return _estimate(
            name, ranked, label, labels, unit=unit, axis=axis, level=level, draws=draws, draw_seed=draw_seed, told=(*told, *notes)
        )  # fmt: skip

    if not features:
        found = [estimate("auroc", score, "no depth and no length is given: how much of it is the length of a rollout is not known")]
    else:
        texture = estimate("auroc:texture", _fit(kept, features, label))
        residual = estimate("auroc:residual", score - _fit(kept, features, score))
        found = [estimate("auroc", score, *_warned(texture, residual)), texture, residual]
    if "entropy" in table.columns:
        found.append(estimate("auroc:entropy", -kept.numbers("entropy")))
    elif features:
        found[0] = _with(found[0], "no token entropy is given: the baseline that needs no training is not shown")
    if "task" in table.columns:
        found.append(_within(score, label, kept.labels("task"), unit=unit, axis=axis, told=tuple(told)))
    return found


def area(score: Floats, label: Floats) -> float:
    """The share of pairs of a 1 and a 0 that the score ranks rightly, ties as half; NaN where there is none of either.

    Source: Mann and Whitney 1947.
    """
    ones, n = int(label.sum()), len(label)
    if ones in (0, n):
        return float("nan")
    return float((stats.rankdata(score)[label == 1].sum() - ones * (ones + 1) / 2) / (ones * (n - ones)))


def delong(score: Floats, label: Floats, *, level: float) -> tuple[float, float]:
    """DeLong's interval, cut off at 0 and 1, of at least two rows of each class."""
    rank, ones = stats.rankdata(score), label == 1
    m, n = int(ones.sum()), int((~ones).sum())
    above = (rank[ones] - stats.rankdata(score[ones])) / n
    below = 1 - (rank[~ones] - stats.rankdata(score[~ones])) / m
    half = float(stats.norm.ppf((1 + level) / 2)) * float(above.var(ddof=1) / m + below.var(ddof=1) / n) ** 0.5
    return max(0.0, float(above.mean()) - half), min(1.0, float(above.mean()) + half)


def _estimate(
    name: str, score: Floats, label: Floats, labels: Labels, *, unit: str, axis: str | None, level: float, draws: int, draw_seed: int,
    told: tuple[str, ...],
) -> Estimate:  # fmt: skip
    clusters, row = numbered(labels)
    ones = int(label.sum())
    controls = {"successes": float(ones), "failures": float(len(label) - ones), "clusters": float(clusters)}
    value = area(score, label)
    if np.isnan(value):
        why = "all rows are of one class: nothing can be ranked"
        return Estimate(name, None, None, None, None, len(label), "none", unit, axis, controls, (*told, why))
    if clusters == len(label) and min(ones, len(label) - ones) >= 2:
        ends, method = delong(score, label, level=level), "delong"
        told = (*told, "the score separates the classes wholly: the interval cannot show what was never seen") if value in (0, 1) else told
    elif clusters < 2 or clusters == len(label):
        why = "one cluster: there is no interval" if clusters < 2 else "one row of a class: there is no interval"
        return Estimate(name, value, None, None, None, len(label), "none", unit, axis, controls, (*told, why))
    else:
        drawn = _drawn(score, label, row, clusters, draws=draws, draw_seed=draw_seed)
        told = told if len(drawn) == draws else (*told, f"{draws - len(drawn)} of {draws} draws had one class alone and are left out")
        ends, method = quantiles(drawn, level), "cluster_bootstrap"
    return Estimate(name, value, *ends, level, len(label), method, unit, axis, controls, told)


def _drawn(score: Floats, label: Floats, row: NDArray[np.int64], clusters: int, *, draws: int, draw_seed: int) -> Floats:
    """The area in each draw of clusters that has both classes."""
    order = np.argsort(score, kind="stable")
    ones, row = label[order] == 1, row[order]
    starts = np.flatnonzero(np.concatenate([[True], np.diff(score[order]) > 0]))
    rng, found = np.random.default_rng(draw_seed), list[Floats]()
    for at in range(0, draws, _CHUNK):
        weight = resampled(rng, clusters, min(_CHUNK, draws - at))[:, row]
        up, down = (np.add.reduceat(weight * side, starts, axis=1) for side in (ones, ~ones))
        right = (up * (np.cumsum(down, axis=1) - down / 2)).sum(axis=1)
        pairs = up.sum(axis=1) * down.sum(axis=1)
        found.append(right[pairs > 0] / pairs[pairs > 0])
    return np.concatenate(found)


def _fit(table: Table, features: Sequence[str], target: Floats) -> Floats:
    """The least-squares fit of a target on depth and log(1 + length)."""
    columns = [np.log1p(table.numbers(name)) if name == "length" else table.numbers(name) for name in features]
    design = np.column_stack([np.ones(table.n), *columns])
    return np.asarray(np.round(design @ np.linalg.lstsq(design, target, rcond=None)[0], 12), dtype=np.float64)


def _warned(texture: Estimate, residual: Estimate) -> tuple[str, ...]:
    if residual.value is None or residual.low is None or texture.value is None or residual.low > 0.5:
        return ()
    return (f"without depth and length it ranks no better than chance (residual {residual.value:.3f}, texture alone {texture.value:.3f})",)


def _with(estimate: Estimate, note: str) -> Estimate:
    return Estimate(**{**estimate.__dict__, "caveats": (*estimate.caveats, note)})


def _within(score: Floats, label: Floats, task: Labels, *, unit: str, axis: str | None, told: tuple[str, ...]) -> Estimate:
    tasks, row = numbered(task)
    pairs, right = 0.0, 0.0
    for number in range(tasks):
        mine = row == number
        ones = float(label[mine].sum())
        if 0 < ones < mine.sum():
            count = ones * (float(mine.sum()) - ones)
            pairs, right = pairs + count, right + count * area(score[mine], label[mine])
    name, n = "auroc:within", len(label)
    if pairs == 0:
        return Estimate(name, None, None, None, None, n, "none", unit, axis, {}, (*told, "no task has a success and a failure"))
    return Estimate(name, right / pairs, None, None, None, n, "pairs_within_tasks", unit, axis, {"pairs": pairs}, told)
