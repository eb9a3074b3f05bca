"""Labels of two raters joined item by item, and the agreement of a table of counts. Pure."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from audit.statistics import Estimate, Floats, Labels, Table
from audit.statistics._clusters import FEW_CLUSTERS, check_level, numbered, quantiles, resampled, widest_first
from ledger.errors import StatisticRefused

PREVALENT = 0.9


def missing(label: object) -> bool:
    """Whether a cell holds no label."""
    return label is None or (isinstance(label, float) and bool(np.isnan(label)))


def checked(labels: Labels, column: str, allowed: Sequence[object]) -> list[object]:
    """The labels as a list.

    Raises:
        StatisticRefused: one is missing, or not among those that are allowed. Neither is a disagreement.
    """
    found: list[object] = labels.tolist()
    absent = [number for number, label in enumerate(found) if missing(label)]
    if absent:
        raise StatisticRefused(
            f"{len(absent)} of {len(found)} items have no {column}, the first is row {absent[0]}; allowed: a label each: an item that one "
            "side lacks was not joined, and is an error, not a disagreement"
        )
    strange = [label for label in found if allowed and label not in allowed]
    if strange:
        raise StatisticRefused(f"column {column!r} holds {strange[0]!r}; allowed: {', '.join(map(repr, allowed))}")
    return found


def joined(
    first: Sequence[object], second: Sequence[object], allowed: Sequence[object]
) -> tuple[list[object], NDArray[np.int64], tuple[str, ...]]:
    """All labels in order, each item's pair of label numbers, and what to know of them."""
    names = list(allowed) or sorted({*first, *second}, key=repr)
    number = {name: place for place, name in enumerate(names)}
    pairs = np.array([(number[one], number[other]) for one, other in zip(first, second, strict=True)], dtype=np.int64).reshape(-1, 2)
    alone = [] if allowed else sorted({*first} ^ {*second}, key=repr)
    told = (f"only one side uses {', '.join(map(repr, alone[:5]))}: without a list of labels a misspelt one counts as disagreement",)
    return names, pairs, told if alone else ()


def kappa_of(counts: Floats) -> tuple[Floats, Floats, Floats]:
    """Kappa, observed and expected agreement of tables `... × K × K` of counts; kappa is NaN where all is one label."""
    share = counts / counts.sum(axis=(-2, -1), keepdims=True)
    seen = np.trace(share, axis1=-2, axis2=-1)
    expected = (share.sum(axis=-1) * share.sum(axis=-2)).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        kappa = np.where(expected < 1 - 1e-12, (seen - expected) / (1 - expected), np.nan)
    return kappa, np.asarray(seen), np.asarray(expected)


def kappa_variance(counts: Floats) -> float:
    """The large-sample variance of kappa.

    Source: Fleiss, Cohen and Everitt 1969, equation 13.
    """
    n = float(counts.sum())
    share = counts / n
    row, column = share.sum(axis=1), share.sum(axis=0)
    seen, expected = float(np.trace(share)), float((row * column).sum())
    on = float((np.diag(share) * ((1 - expected) - (row + column) * (1 - seen)) ** 2).sum())
    off = share * (column[:, None] + row[None, :]) ** 2
    rest = (1 - seen) ** 2 * float(off.sum() - np.trace(off))
    return (on + rest - (seen * expected - 2 * expected + seen) ** 2) / (n * (1 - expected) ** 4)


def kappas(
    pairs: NDArray[np.int64], k: int, labels: Labels | None, by: str, *, unit: str, axis: str | None, level: float, draws: int,
    draw_seed: int, told: tuple[str, ...],
) -> list[Estimate]:  # fmt: skip
    """`kappa`, the widest interval first: the large-sample one, and over resampled clusters where items share one."""
    check_level(level)
    n = len(pairs)
    if n == 0:
        return [Estimate("kappa", None, None, None, None, 0, "none", unit, axis, {}, (*told, "there is no item"))]
    clusters, row = numbered(np.arange(n) if labels is None else labels)
    table = np.zeros((clusters, k, k))
    np.add.at(table, (row, pairs[:, 0], pairs[:, 1]), 1.0)
    counts = table.sum(axis=0)
    kappa, seen, expected = (float(part) for part in kappa_of(counts))
    controls = {"agreement": seen, "expected": expected, "labels": float(k), "clusters": float(clusters)}
    if np.isnan(kappa):
        why = "both sides say one label of everything: kappa is not defined"
        return [Estimate("kappa", None, None, None, None, n, "none", unit, axis, controls, (*told, why))]
    if expected >= PREVALENT:
        told = (*told, f"one label is so common that chance agrees in {expected:.2f}: kappa is low even where the raters seldom differ")
    if seen == 1:
        told = (*told, "no item differs: the interval cannot show what was never seen")
    half = float(stats.norm.ppf((1 + level) / 2)) * max(0.0, kappa_variance(counts)) ** 0.5
    told_plain = told if clusters == n else (*told, f"items of one {by} are taken as independent")
    found = [
        Estimate(
            "kappa", kappa, max(-1.0, kappa - half), min(1.0, kappa + half), level, n, "large_sample", unit, axis, controls, told_plain
        )
    ]
    if clusters >= 2:
        drawn = kappa_of((resampled(np.random.default_rng(draw_seed), clusters, draws) @ table.reshape(clusters, -1)).reshape(-1, k, k))[0]
        few = (f"only {clusters} clusters by {by}: the interval tends to be too narrow",) if clusters < FEW_CLUSTERS else ()
        low, high = quantiles(drawn[~np.isnan(drawn)], level) if (~np.isnan(drawn)).any() else (None, None)
        found.append(
            Estimate("kappa", kappa, low, high, None if low is None else level, n, "cluster_bootstrap", unit, axis, controls, (*told, *few))
        )
    return widest_first(found)


def cluster_labels(table: Table, cluster: Sequence[str]) -> tuple[Labels | None, str]:
    """The column within whose values items depend on each other, and its name; none where the table lacks it."""
    by = next((name for name in cluster if name in table.columns), None)
    return (None, "item") if by is None else (table.labels(by), by)
