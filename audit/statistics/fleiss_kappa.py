"""Agreement of several raters beyond chance, whichever of them rated an item."""

from collections.abc import Sequence

import numpy as np

from audit.statistics import Estimate, Floats, Table
from audit.statistics._agreement import PREVALENT, checked
from audit.statistics._clusters import FEW_CLUSTERS, check_draws, check_level, numbered, quantiles, resampled
from ledger.errors import StatisticRefused


def fleiss_kappa(
    table: Table,
    *,
    unit: str = "kappa",
    cluster: Sequence[str] = ("item",),
    axis: str | None = None,
    labels: Sequence[str] = (),
    level: float = 0.95,
    draws: int = 2000,
    draw_seed: int = 0,
) -> list[Estimate]:
    """`kappa` with an interval over resampled items, then `agreement:<label>`: how likely a second rater says the label too.

    It takes raters as exchangeable and items as independent. Items need not have equally many ratings, but two at least.

    Args:
        table: `item`, `rater` and `label`, a row a rating.
        cluster: what is resampled; `item`, or a column that is the same for all rows of an item.
        labels: all that are allowed; any without them.
        level: of the interval.
        draws: bootstrap draws.
        draw_seed: of the draws.
    Raises:
        StatisticRefused: a label is missing or not allowed, a rater rated an item twice, or an item has one rating.

    Source: Fleiss 1971.
    """
    check_level(level), check_draws(draws)
    said = checked(table.labels("label"), "label", labels)
    names: list[object] = list(labels) or sorted(set(said), key=repr)
    items, item = numbered(table.labels("item"))
    twice = table.n - len(set(zip(item.tolist(), table.labels("rater").tolist(), strict=True)))
    if twice:
        raise StatisticRefused(f"{twice} ratings are of an item that the same rater had rated; allowed: one a rater and item")
    counts = np.zeros((items, len(names)))
    np.add.at(counts, (item, np.array([names.index(label) for label in said], dtype=np.int64)), 1.0)
    if items == 0:
        return [Estimate("kappa", None, None, None, None, 0, "none", unit, axis, {}, ("there is no item",))]
    ratings = counts.sum(axis=1)
    if ratings.min() < 2:
        raise StatisticRefused(f"{int((ratings < 2).sum())} of {items} items have one rating; allowed: two or more each")
    by = next((name for name in cluster if name in table.columns), "item")
    clusters, row = numbered(table.labels(by))
    owner = np.zeros(items, dtype=np.int64)
    owner[item] = row
    agreed = (counts * (counts - 1)).sum(axis=1) / (ratings * (ratings - 1))
    sums = np.zeros((clusters, 2 + len(names)))
    np.add.at(sums, owner, np.column_stack([np.ones(items), agreed, counts]))
    kappa, expected = (float(part[0]) for part in _kappa(sums.sum(axis=0, keepdims=True)))
    controls = {"agreement": float(agreed.mean()), "expected": expected, "ratings": float(ratings.mean()), "clusters": float(clusters)}
    told = ["items have different numbers of ratings; each counts alike"] if np.ptp(ratings) else []
    told += [f"only {clusters} clusters by {by}: the interval tends to be too narrow"] if clusters < FEW_CLUSTERS else []
    told += [f"one label is so common that chance agrees in {expected:.2f}"] if PREVALENT <= expected < 1 else []
    if np.isnan(kappa):
        return [Estimate("kappa", None, None, None, None, items, "none", unit, axis, controls, (*told, "there is one label alone"))]
    low, high, given, method = None, None, None, "none"
    if clusters > 1:
        drawn = _kappa(resampled(np.random.default_rng(draw_seed), clusters, draws) @ sums)[0]
        (low, high), given, method = (
            quantiles(drawn[~np.isnan(drawn)], level),
            level,
            "item_bootstrap" if by == "item" else "cluster_bootstrap",
        )
    found = [Estimate("kappa", kappa, low, high, given, items, method, unit, axis, controls, tuple(told))]
    again = (counts * (counts - 1) / (ratings - 1)[:, None]).sum(axis=0) / np.maximum(counts.sum(axis=0), 1)
    for place, name in enumerate(names):
        used = int(counts[:, place].sum())
        value, notes = (float(again[place]), ()) if used else (None, (f"nobody said {name!r}",))
        found.append(Estimate(f"agreement:{name}", value, None, None, None, used, "second_rater", "share", axis, {}, notes))
    return found


def _kappa(sums: Floats) -> tuple[Floats, Floats]:
    """Kappa and expected agreement of rows of (items, sum of agreements, count of each label)."""
    share = sums[:, 2:] / sums[:, 2:].sum(axis=1, keepdims=True)
    expected = (share**2).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        kappa = np.where(expected < 1 - 1e-12, (sums[:, 1] / sums[:, 0] - expected) / (1 - expected), np.nan)
    return kappa, expected
