"""A gate that may be looked at after every task: a candidate that is no better is accepted with probability at most α in all."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from audit.statistics import Estimate, Floats, Table
from audit.statistics._clusters import numbered
from ledger.errors import StatisticRefused

BETS = ("agrapa", "grid")
GRID = tuple(round(0.05 * step, 2) for step in range(1, 16))
"""Fractions of the mixture, .05 to .75, in equal parts."""


@dataclass(frozen=True, eq=False)
class Gate:
    """The course of the bets.

    Attributes:
        alpha: share of wrong acceptances that is allowed, over all looks together.
        log_e_n: log of the capital after each task; it starts at 0.
        log_harm_n: that of the opposite bet, that the candidate is worse.
    """

    alpha: float
    log_e_n: Floats
    log_harm_n: Floats

    @property
    def accepted_at(self) -> int | None:
        """Tasks after which the capital first reached 1/α; None while it has not."""
        return _first(self.log_e_n >= -np.log(self.alpha))

    @property
    def harmful_at(self) -> int | None:
        """Tasks after which the candidate was first shown to be worse, at the same α."""
        return _first(self.log_harm_n >= -np.log(self.alpha))


def anytime_valid_gate(
    table: Table,
    *,
    unit: str = "capital",
    cluster: Sequence[str] = ("task",),
    axis: str | None = None,
    alpha: float = 0.05,
    bet: str = "agrapa",
    cap: float = 0.5,
    proposal: int = 0,
) -> list[Estimate]:
    """`e_value` (the largest capital so far), `p_value` (anytime-valid), `accepted_at`, `harmful_at` and `mean_difference`.

    It takes the tasks in the order of the rows, and assumes that given those before it no task's expected difference is above 0 where the
    candidate is no better; it assumes no distribution and no number of tasks, and it may stop at any look. It does not hold where tasks
    were chosen by their outcome, or where a task is seen twice: several rows of one task are averaged into one bet.

    Args:
        table: columns `before`, `after` (each between 0 and 1, NaN where missing) and `task`, in the order of evaluation.
        cluster: named for the signature; the column is `task`.
        alpha: share of wrong acceptances that is allowed, over all looks together.
        bet: `agrapa` (the fraction follows the mean and variance so far) or `grid` (a mixture of fixed fractions).
        cap: largest fraction of `agrapa`, above 0 and below 1.
        proposal: number of the candidate among those tried against this error budget, from 1; it may spend α · 6 / (π² number²), so that
            all of them together spend at most α. 0 for a single candidate that may spend all.
    Raises:
        StatisticRefused: a column is missing, a value is not between 0 and 1, or a parameter does not fit.

    Source: Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, 2024 (aGRAPA; mixture of a grid of bets).
    """
    allowed = spent_alpha(alpha, proposal)
    difference_n, told = _differences(table)
    gate = bets(difference_n, alpha=allowed, bet=bet, cap=cap)
    n = len(difference_n)
    if n == 0:
        names = ("e_value", "p_value", "accepted_at", "harmful_at", "mean_difference")
        return [Estimate(name, None, None, None, None, 0, "none", unit, axis, caveats=(*told, "there is no pair")) for name in names]
    if not difference_n.any():
        told = (*told, "no task differs: nothing was bet, and no number of such tasks would accept the candidate")
    peak = max(0.0, float(gate.log_e_n.max()))
    controls = {
        "alpha": allowed, "threshold": 1 / allowed, "e_value_now": _bounded(float(gate.log_e_n[-1])), "tasks": float(n),
        "discordant": float(np.count_nonzero(difference_n)), "harm_e_value": _bounded(max(0.0, float(gate.log_harm_n.max()))),
    }  # fmt: skip
    method = f"betting_{bet}"

    def estimate(name: str, value: float | None, kind: str, *notes: str) -> Estimate:
        return Estimate(name, value, None, None, None, n, method, kind, axis, controls, (*told, *notes))

    accepted, harmful = gate.accepted_at, gate.harmful_at
    return [
        estimate("e_value", _bounded(peak), unit),
        estimate("p_value", float(np.exp(-peak)), "probability"),
        estimate("accepted_at", None if accepted is None else float(accepted), "tasks", *(() if accepted else ("not accepted so far",))),
        estimate("harmful_at", None if harmful is None else float(harmful), "tasks", *(() if harmful else ("not shown to be worse",))),
        estimate("mean_difference", float(difference_n.mean()), "share", "an estimate at a stopping time leans to the side of the stop"),
    ]


def bets(difference_n: Floats, *, alpha: float, bet: str = "agrapa", cap: float = 0.5) -> Gate:
    """The course of the bets on differences, candidate minus incumbent.

    Args:
        difference_n: between -1 and 1, in order; rows of a matrix are courses of their own.
        alpha, bet, cap: as for the statistic.
    Raises:
        StatisticRefused: a difference or a parameter does not fit.
    """
    if not 0 < alpha < 1:
        raise StatisticRefused(f"alpha is {alpha}; allowed: more than 0 and less than 1, such as 0.05")
    if bet not in BETS:
        raise StatisticRefused(f"bet is {bet!r}; allowed: {', '.join(BETS)}")
    if not 0 < cap < 1:
        raise StatisticRefused(f"cap is {cap}; allowed: more than 0 and less than 1: at 1 a single loss would take all capital for good")
    if difference_n.size and not (np.abs(difference_n) <= 1).all():
        raise StatisticRefused(f"differences reach {float(np.abs(difference_n).max())}; allowed: -1 to 1")
    course = (lambda values: _agrapa(values, cap)) if bet == "agrapa" else _mixture
    return Gate(alpha, course(difference_n), course(-difference_n))


def spent_alpha(alpha: float, proposal: int) -> float:
    """What one of a row of proposals may spend of an error budget; all of `alpha` for number 0."""
    if proposal < 0:
        raise StatisticRefused(f"proposal is {proposal}; allowed: 0 for a single candidate, or its number from 1")
    return alpha if proposal == 0 else alpha * 6 / (np.pi**2 * proposal**2)


def _agrapa(difference: Floats, cap: float) -> Floats:
    """Log capital where each bet is mean / (variance + mean²) of the differences before it, which one of mean 0 and square 1 precedes."""
    seen = np.arange(1, difference.shape[-1] + 1)
    mean = np.cumsum(difference, -1) / (seen + 1)
    square = (1.0 + np.cumsum(difference**2, -1)) / (seen + 1)
    fraction = np.clip(mean / square, 0.0, cap)
    before = np.concatenate([np.zeros((*difference.shape[:-1], 1)), fraction[..., :-1]], -1) if difference.size else fraction
    return np.asarray(np.cumsum(np.log1p(before * difference), -1), dtype=np.float64)


def _mixture(difference: Floats) -> Floats:
    """Log of the mean capital of the fixed fractions."""
    log_k = np.stack([np.cumsum(np.log1p(fraction * difference), -1) for fraction in GRID])
    return np.asarray(np.logaddexp.reduce(log_k, axis=0) - np.log(len(GRID)), dtype=np.float64)


def _differences(table: Table) -> tuple[Floats, tuple[str, ...]]:
    """One difference a task in the order of their first rows, and what was left out or averaged."""
    before, after = table.numbers("before"), table.numbers("after")
    paired = ~np.isnan(before) & ~np.isnan(after)
    lost = int((~paired).sum())
    told = [f"{lost} of {table.n} rows lack one side and are no pair; if the outcome decides what is missing, the gate does not hold"]
    told = told if lost else []
    both = np.concatenate([before[paired], after[paired]])
    if both.size and (both.min() < 0 or both.max() > 1):
        raise StatisticRefused(f"columns 'before' and 'after' reach from {both.min()} to {both.max()}; allowed: 0 to 1")
    tasks, task = numbered(table.labels("task")[paired])
    difference = after[paired] - before[paired]
    if tasks < len(difference):
        told.append("several rows of one task are one bet on their mean difference, at the task's first row")
    sums, counts = np.bincount(task, difference, tasks), np.bincount(task, minlength=tasks)
    return (sums / counts if tasks else np.zeros(0)), tuple(told)


def _first(reached: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> int | None:
    return int(np.argmax(reached)) + 1 if reached.any() else None


def _bounded(log_value: float) -> float:
    return float(np.exp(min(log_value, 700.0)))
