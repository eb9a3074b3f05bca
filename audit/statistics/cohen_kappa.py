"""Agreement of two raters beyond chance."""

from collections.abc import Sequence

from audit.statistics import Estimate, Table
from audit.statistics._agreement import checked, cluster_labels, joined, kappas
from audit.statistics._clusters import check_draws


def cohen_kappa(
    table: Table,
    *,
    unit: str = "kappa",
    cluster: Sequence[str] = ("bundle",),
    axis: str | None = None,
    labels: Sequence[str] = (),
    level: float = 0.95,
    draws: int = 2000,
    draw_seed: int = 0,
) -> list[Estimate]:
    """`kappa`, the widest interval first; the controls hold the plain and the expected agreement.

    It takes both raters as fixed and items, or clusters of them, as independent. It says how alike two raters are, not which is right:
    raters that share a blind spot agree.

    Args:
        table: `first` and `second` (a label each), a row an item, and the first of the columns that `cluster` names, where it is there.
        labels: all that are allowed; without them any label is, and one that only one side uses is named in a caveat.
        level: of the intervals.
        draws: bootstrap draws.
        draw_seed: of the draws.
    Raises:
        StatisticRefused: a label is missing or not allowed: an item that was not joined is an error, not a disagreement.

    Source: Cohen 1960; the interval as in Fleiss, Cohen and Everitt 1969.
    """
    check_draws(draws)
    names, pairs, told = joined(checked(table.labels("first"), "first", labels), checked(table.labels("second"), "second", labels), labels)
    by_n, by = cluster_labels(table, cluster)
    return kappas(pairs, len(names), by_n, by, unit=unit, axis=axis, level=level, draws=draws, draw_seed=draw_seed, told=told)
