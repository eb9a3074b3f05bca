"""Whether systems keep their order when another judge scores them."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy import stats

from audit.statistics import Estimate, Floats, Table
from audit.statistics._clusters import FEW_CLUSTERS, check_draws, check_level, numbered, quantiles, resampled
from ledger.errors import StatisticRefused


def rank_stability(
    table: Table,
    *,
    unit: str = "tau",
    cluster: Sequence[str] = ("item",),
    axis: str | None = None,
    level: float = 0.95,
    draws: int = 1000,
    draw_seed: int = 0,
) -> list[Estimate]:
    """`kendall_tau` (mean over pairs of judges), `same_first`, `tau:<judge>|<judge>`, and `rank:<system>` with its best and worst rank.

    The order of systems is that of their mean scores on the items that every judge scored for every system. The interval resamples items
    and keeps judges as they are: it says nothing of a judge that was not asked. Judges of one family may share what they like.

    Args:
        table: `judge`, `system`, `score` (higher is better, NaN where missing) and `item`.
        cluster: what is resampled; `item`, or a column that is the same for all rows of an item.
        level: of the interval.
        draws: bootstrap draws.
        draw_seed: of the draws.
    Raises:
        StatisticRefused: fewer than two judges or systems, no item that all scored, or a column is missing.

    Source: Kendall 1938 (tau-b).
    """
    check_level(level), check_draws(draws)
    judges, systems = (list(dict.fromkeys(table.labels(name).tolist())) for name in ("judge", "system"))
    if len(judges) < 2 or len(systems) < 2:
        raise StatisticRefused(f"{len(judges)} judges and {len(systems)} systems; allowed: two or more of each")
    score_JSI, items, told = _scores(table, judges, systems, next((name for name in cluster if name in table.columns), "item"))
    told += [f"judge {name!r} is also a system that is judged" for name in judges if name in systems]
    told += [f"{len(systems)} systems: a single swap moves tau by much"] if len(systems) < 5 else []
    told += [f"only {items} items or clusters: the interval tends to be too narrow"] if items < FEW_CLUSTERS else []
    mean_JS = score_JSI.sum(axis=2)
    tau, same = _stability(mean_JS)
    if np.isnan(tau):
        told.append("a judge scores all systems alike: it has no order to compare")
    weight = resampled(np.random.default_rng(draw_seed), items, draws) if items > 1 else np.zeros((0, items))
    drawn = np.array([_stability(score_JSI @ one) for one in weight]).reshape(-1, 2)
    controls = {"judges": float(len(judges)), "systems": float(len(systems)), "items": float(items)}

    def estimate(name: str, value: float, place: int, kind: str) -> Estimate:
        known = drawn[~np.isnan(drawn[:, place]), place]
        low, high = quantiles(known, level) if len(known) and not np.isnan(value) else (None, None)
        given = None if low is None else level
        method = "none" if given is None else "item_bootstrap"
        return Estimate(name, None if np.isnan(value) else value, low, high, given, items, method, kind, axis, controls, tuple(told))

    found = [estimate("kendall_tau", tau, 0, unit), estimate("same_first", same, 1, "share of pairs of judges")]
    for one, other in combinations(range(len(judges)), 2):
        value = _tau(mean_JS[one], mean_JS[other])
        kept = None if np.isnan(value) else value
        found.append(Estimate(f"tau:{judges[one]}|{judges[other]}", kept, None, None, None, items, "kendall_tau_b", unit, axis))
    rank_JS = np.array([stats.rankdata(-row) for row in mean_JS])
    for place, system in enumerate(systems):
        ranks = rank_JS[:, place]
        best, worst, name = float(ranks.min()), float(ranks.max()), f"rank:{system}"
        found.append(Estimate(name, float(ranks.mean()), best, worst, None, len(judges), "best_and_worst", "rank", axis))
    return found


def _stability(mean_JS: Floats) -> tuple[float, float]:
    """Mean tau of the pairs of judges, and the share of pairs whose first is the same; NaN where a judge has no order."""
    pairs = list(combinations(range(len(mean_JS)), 2))
    taus = [_tau(mean_JS[one], mean_JS[other]) for one, other in pairs]
    first = [set(np.flatnonzero(row == row.max()).tolist()) for row in mean_JS]
    return float(np.mean(taus)), sum(first[one] == first[other] for one, other in pairs) / len(pairs)


def _tau(one: Floats, other: Floats) -> float:
    up = np.sign(np.subtract.outer(one, one)), np.sign(np.subtract.outer(other, other))
    norm = float((up[0] ** 2).sum() * (up[1] ** 2).sum()) ** 0.5
    return float((up[0] * up[1]).sum()) / norm if norm else float("nan")


def _scores(table: Table, judges: list[object], systems: list[object], by: str) -> tuple[Floats, int, list[str]]:
    """Scores by judge, system and cluster, summed over the items that have all of them."""
    items, item = numbered(table.labels("item"))
    score = table.numbers("score")
    sums, counts = (np.zeros((len(judges), len(systems), items)) for _ in range(2))
    place = tuple(
        np.array([names.index(name) for name in table.labels(column).tolist()], dtype=np.int64)
        for names, column in ((judges, "judge"), (systems, "system"))
    )
    known = ~np.isnan(score)
    np.add.at(sums, (place[0][known], place[1][known], item[known]), score[known])
    np.add.at(counts, (place[0][known], place[1][known], item[known]), 1.0)
    whole = counts.min(axis=(0, 1)) > 0
    if not whole.any():
        raise StatisticRefused(f"none of {items} items was scored by every judge for every system")
    clusters, row = numbered(table.labels(by))
    owner = np.zeros(items, dtype=np.int64)
    owner[item] = row
    one_hot = np.eye(clusters)[owner[whole]]
    mean = (sums[:, :, whole] / counts[:, :, whole]) @ one_hot
    kept = np.unique(owner[whole])
    told = [] if whole.all() else [f"{int((~whole).sum())} of {items} items lack a score of some judge for some system and are left out"]
    return np.round(mean[:, :, kept], 12), len(kept), told
