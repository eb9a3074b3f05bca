"""What a judge gets wrong by a person's labels: false positives, false negatives, agreement and kappa."""

from collections.abc import Sequence

import numpy as np

from audit.statistics import Estimate, Table
from audit.statistics._agreement import checked, cluster_labels, joined, kappas
from audit.statistics._clusters import check_draws, check_level, numbered
from audit.statistics.success_rate import success_rate
from ledger.errors import StatisticRefused

NOT_ACCURACY = "agreement with a person's label is not accuracy: what both miss is not seen"


def judge_human(
    table: Table,
    *,
    unit: str = "share",
    cluster: Sequence[str] = ("bundle",),
    axis: str | None = None,
    level: float = 0.95,
    draws: int = 2000,
    draw_seed: int = 0,
) -> list[Estimate]:
    """`kappa`, `agreement`, `false_positive_rate` (of what the person failed) and `false_negative_rate` (of what the person passed).

    It takes the person's label as right, and the labelled items as drawn at random. Where they come from a queue of disagreements
    (column `queued`), the rates hold for that queue alone, and a caveat says so.

    Args:
        table: `judge` and `human` (1 passed, 0 failed), a row an item; the first of the columns that `cluster` names, where it is there;
            `queued` (1 where the item was labelled because it was suspicious), where it is known.
        level: of the intervals.
        draws: bootstrap draws.
        draw_seed: of the draws.
    Raises:
        StatisticRefused: a label is missing or neither 0 nor 1: an item that was not joined is an error, not a disagreement.

    Source: Cohen 1960; rates as in Zheng et al., Judging LLM-as-a-judge, 2023.
    """
    check_level(level), check_draws(draws)
    judge, human = (checked(table.labels(name), name, (0, 1, 0.0, 1.0, False, True)) for name in ("judge", "human"))
    said, right = np.array(judge, dtype=np.float64), np.array(human, dtype=np.float64)
    _, pairs, _ = joined([int(value) for value in said], [int(value) for value in right], (0, 1))
    told = [NOT_ACCURACY]
    if "queued" in table.columns:
        queued = table.numbers("queued")
        if np.isnan(queued).any():
            raise StatisticRefused("column 'queued' misses values; allowed: 0 or 1 each")
        if queued.any():
            told.append(f"{int(queued.sum())} of {table.n} items were labelled because they were suspicious: the rates hold for such items")
    by_n, by = cluster_labels(table, cluster)
    labels = np.arange(table.n) if by_n is None else by_n
    found = kappas(
        pairs, 2, by_n, by, unit="kappa", axis=axis, level=level, draws=draws, draw_seed=draw_seed, told=tuple(told)
    )[:1]  # fmt: skip
    sides = (
        ("agreement", np.ones(table.n, dtype=bool), said == right, "no item is labelled"),
        ("false_positive_rate", right == 0, said == 1, "the person failed nothing: whether the judge lets failures through is not known"),
        ("false_negative_rate", right == 1, said == 0, "the person passed nothing: whether the judge fails what is right is not known"),
    )
    for name, of, hit, none in sides:
        n = int(of.sum())
        if n == 0:
            found.append(Estimate(name, None, None, None, None, 0, "none", unit, axis, {}, (*told, none)))
            continue
        part = Table({"passed": hit[of].astype(np.float64), "cluster": numbered(labels[of])[1]})
        first = success_rate(part, unit=unit, cluster=("cluster",), axis=axis, level=level, draws=draws, draw_seed=draw_seed)[0]
        controls = {**first.controls, "hits": float(hit[of].sum())}
        found.append(
            Estimate(name, first.value, first.low, first.high, level, n, first.method, unit, axis, controls, (*told, *first.caveats))
        )
    return found
