"""Differences of two arms on the same tasks, and their mean over seeds and tasks. Pure."""

from dataclasses import dataclass

import numpy as np

from audit.statistics import Floats, Table
from audit.statistics._clusters import numbered, quantiles, resampled

FEW_TASKS = 30


@dataclass(frozen=True, eq=False)
class Differences:
    """After minus before, summed and counted by seed and task.

    Attributes:
        sum_ST, count_ST: seeds × tasks; a pair that is missing has count 0.
        n: pairs.
        caveats: what was left out.
    """

    sum_ST: Floats
    count_ST: Floats
    n: int
    caveats: tuple[str, ...]

    @property
    def seeds(self) -> int:
        """Seeds with a pair."""
        return len(self.sum_ST)

    @property
    def tasks(self) -> int:
        """Tasks with a pair."""
        return int(self.sum_ST.shape[1])

    @property
    def alike(self) -> bool:
        """Whether all seeds and tasks have the same mean difference, so that no draw can tell anything."""
        known = self.count_ST > 0
        return bool(np.ptp(self.sum_ST[known] / self.count_ST[known]) == 0)

    @property
    def mean(self) -> float:
        """Mean over all pairs."""
        return float(self.sum_ST.sum() / self.count_ST.sum())

    def bootstrap(self, *, level: float, draws: int, draw_seed: int) -> tuple[float, float]:
        """The percentile interval over seeds and tasks resampled independently of each other; of a single seed over tasks alone."""
        return quantiles(self.drawn(draws=draws, draw_seed=draw_seed), level)

    def drawn(self, *, draws: int, draw_seed: int) -> Floats:
        """The mean in each draw; draws that hit no pair at all are left out."""
        rng = np.random.default_rng(draw_seed)
        weight_DT = resampled(rng, self.tasks, draws)
        weight_DS = resampled(rng, self.seeds, draws) if self.seeds > 1 else np.ones((draws, 1))
        sums = ((weight_DS @ self.sum_ST) * weight_DT).sum(axis=1)
        counts = ((weight_DS @ self.count_ST) * weight_DT).sum(axis=1)
        return np.asarray(sums[counts > 0] / counts[counts > 0], dtype=np.float64)


def differences(table: Table) -> Differences:
    """The pairs of a table with columns `before`, `after`, `task` and, where several trainings are compared, `seed`.

    A row of which one side is missing is no pair, and is counted in a caveat.
    """
    before, after = table.numbers("before"), table.numbers("after")
    paired = ~np.isnan(before) & ~np.isnan(after)
    n, lost = int(paired.sum()), int((~paired).sum())
    told = [f"{lost} of {table.n} rows lack one side and are no pair"] if lost else []
    tasks, task = numbered(table.labels("task")[paired])
    labels = table.labels("seed")[paired] if "seed" in table.columns else np.zeros(n)
    seeds, seed = numbered(labels)
    sums, counts = np.zeros((seeds, tasks)), np.zeros((seeds, tasks))
    np.add.at(sums, (seed, task), (after - before)[paired])
    np.add.at(counts, (seed, task), 1.0)
    if n and counts.min() == 0:
        told.append(f"{int((counts == 0).sum())} of {counts.size} pairs of seed and task are missing")
    if 0 < tasks < FEW_TASKS:
        told.append(f"only {tasks} tasks: below {FEW_TASKS} the interval tends to be too narrow")
    return Differences(sums, counts, n, tuple(told))
