"""Whether stated confidence comes true: expected calibration error over bins of equal mass, Brier score and the reliability table."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from audit.statistics import Estimate, Floats, Table
from audit.statistics._clusters import FEW_CLUSTERS, check_draws, check_level, clustered_mean, numbered, quantiles, resampled
from audit.statistics.success_rate import wilson
from ledger.errors import StatisticRefused

FEW_IN_A_BIN = 20


def calibration(
    table: Table,
    *,
    unit: str = "share",
    cluster: Sequence[str] = ("bundle",),
    axis: str | None = None,
    bins: int = 10,
    level: float = 0.95,
    draws: int = 2000,
    draw_seed: int = 0,
) -> list[Estimate]:
    """`ece`, `brier`, then `reliability:<bin>` with the observed share; its mean confidence is the control `confidence`.

    Bins hold equally many rows as far as equal confidences allow: rows of one confidence are never parted. The error is biased upwards
    where bins are small, because chance alone parts shares from confidences. Clusters are taken as independent; the intervals of single
    bins take rows as independent.

    Args:
        table: `confidence` (0 to 1, of success of the whole rollout), `outcome` (0 or 1), and the columns that `cluster` names.
        bins: at most so many.
        level: of the intervals.
        draws: bootstrap draws.
        draw_seed: of the draws.
    Raises:
        StatisticRefused: a confidence or an outcome does not fit, or a column is missing.

    Source: Naeini, Cooper and Hauskrecht 2015 (ECE); Nixon et al. 2019 (equal mass); Brier 1950.
    """
    check_level(level), check_draws(draws)
    if bins < 1:
        raise StatisticRefused(f"bins is {bins}; allowed: 1 or more")
    stated, came = table.numbers("confidence"), table.numbers("outcome")
    known = ~np.isnan(stated) & ~np.isnan(came)
    kept, lost = table.rows(known), int((~known).sum())
    stated, came = stated[known], came[known]
    if stated.size and (stated.min() < 0 or stated.max() > 1):
        raise StatisticRefused(f"column 'confidence' reaches from {stated.min()} to {stated.max()}; allowed: 0 to 1")
    if not np.isin(came, (0.0, 1.0)).all():
        raise StatisticRefused(f"column 'outcome' holds {sorted(set(came.tolist()) - {0.0, 1.0})[:3]}; allowed: 0, 1 and missing")
    told = [f"{lost} of {table.n} rows lack a confidence or an outcome and are left out"] if lost else []
    if kept.n == 0:
        told.append("there is nothing to measure")
        return [Estimate(name, None, None, None, None, 0, "none", unit, axis, caveats=tuple(told)) for name in ("ece", "brier")]
    place, made = equal_mass(stated, bins)
    sizes = np.bincount(place, minlength=made)
    told += [f"{made} bins instead of {bins}: many rows have the same confidence"] if made < min(bins, kept.n) else []
    told += (
        [f"a bin holds {sizes.min()} rows: below {FEW_IN_A_BIN} chance alone makes the error large"] if sizes.min() < FEW_IN_A_BIN else []
    )
    if came.min() == came.max():
        told.append("every outcome is the same: what is measured is the mean confidence alone")
    ece = _ece(kept, place, made, stated - came, next(iter(cluster), None), level=level, draws=draws, draw_seed=draw_seed)
    squares = Table({**kept.columns, "brier": (stated - came) ** 2})
    brier = clustered_mean(squares, "brier", name="brier", unit=unit, cluster=cluster, axis=axis, level=level, draws=0, draw_seed=0)
    brier = brier or [Estimate("brier", float(((stated - came) ** 2).mean()), None, None, None, kept.n, "none", unit, axis)]
    found = [
        replace(ece, unit=unit, axis=axis, caveats=(*told, *ece.caveats)),
        replace(brier[0], caveats=(*told, *brier[0].caveats), controls={**brier[0].controls, "base_rate": float(came.mean())}),
    ]
    for number in range(made):
        mine = place == number
        low, high = wilson(float(came[mine].sum()), int(sizes[number]), level=level)
        ends = {"confidence": float(stated[mine].mean()), "from": float(stated[mine].min()), "to": float(stated[mine].max())}
        found.append(
            Estimate(
                f"reliability:{number + 1}", float(came[mine].mean()), low, high, level, int(sizes[number]), "wilson", unit, axis, ends
            )
        )
    return found


def equal_mass(value_n: Floats, bins: int) -> tuple[NDArray[np.int64], int]:
    """Each value's bin, and how many bins: of equal size but that equal values share one."""
    order = np.argsort(value_n, kind="stable")
    target = np.arange(len(value_n)) * min(bins, len(value_n)) // len(value_n)
    _, group = np.unique(value_n[order], return_inverse=True)
    # A run of equal values goes where its middle row would.
    first, size = np.searchsorted(group, np.arange(group.max() + 1)), np.bincount(group)
    chosen = target[first + (size - 1) // 2][group]
    _, dense = np.unique(chosen, return_inverse=True)
    place = np.empty(len(value_n), dtype=np.int64)
    place[order] = dense
    return place, int(dense.max()) + 1


def _ece(
    table: Table, place: NDArray[np.int64], made: int, gap: Floats, by: str | None, *, level: float, draws: int, draw_seed: int
) -> Estimate:
    labels = np.arange(table.n) if by is None else table.labels(by)
    clusters, row = numbered(labels)
    gaps = np.zeros((clusters, made))
    np.add.at(gaps, (row, place), gap)
    value = float(np.abs(gaps.sum(axis=0)).sum() / table.n)
    controls = {"bins": float(made), "clusters": float(clusters)}
    if clusters < 2:
        return Estimate("ece", value, None, None, None, table.n, "none", "", None, controls, ("one cluster: there is no interval",))
    weight = resampled(np.random.default_rng(draw_seed), clusters, draws)
    drawn = np.abs(weight @ gaps).sum(axis=1) / (weight @ np.bincount(row, minlength=clusters))
    few = (
        (f"only {clusters} clusters by {by}: below {FEW_CLUSTERS} the interval tends to be too narrow",) if clusters < FEW_CLUSTERS else ()
    )
    return Estimate("ece", value, *quantiles(drawn, level), level, table.n, "cluster_bootstrap", "", None, controls, few)
