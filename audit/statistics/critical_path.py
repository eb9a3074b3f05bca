"""The longest chain of tasks that wait for each other, always beside the work that all of them take."""

from collections.abc import Mapping, Sequence

import numpy as np

from audit.statistics import Estimate, Floats, Table
from ledger.errors import StatisticRefused

_TOLERANCE_S = 1e-6


def critical_path(
    table: Table,
    *,
    unit: str = "s",
    cluster: Sequence[str] = (),
    axis: str | None = None,
) -> list[Estimate]:
    """`critical_path`, `total_work`, `parallelism` (work over path), and `makespan` where starts are known.

    The path is what the work would take with as many workers as it wants; it is neither what was paid nor independent evidence, and it is
    never given without the total. It assumes that the dependencies are all there: one that is missing makes it too short.

    Args:
        table: `task` (unique), `duration` (in `unit`, 0 or more), `after` (names of the tasks it waits for, with commas; empty for none),
            and where they are known `start` (same unit; NaN where nobody measured it) and `cost` (tokens, money or the like).
        cluster: named for the signature.
    Raises:
        StatisticRefused: a task is named twice, waits for one that is not there or for itself, or a duration is missing or negative.

    Source: Kelley and Walker 1959; critical against total steps as in Kimi K2.5 (PARL).
    """
    names = [str(name) for name in table.labels("task").tolist()]
    duration = table.numbers("duration")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise StatisticRefused(f"task {twice!r} is named twice; allowed: a name of its own each")
    if np.isnan(duration).any() or (duration < 0).any():
        bad = names[int(np.argmax(np.isnan(duration) | (duration < 0)))]
        raise StatisticRefused(f"task {bad!r} has the duration {duration[names.index(bad)]}; allowed: 0 or more, known for every task")
    if not names:
        why = ("there is no task",)
        return [Estimate(name, None, None, None, None, 0, "none", unit, axis, {}, why) for name in ("critical_path", "total_work")]
    waits = {
        name: [part.strip() for part in str(text or "").split(",") if part.strip()]
        for name, text in zip(names, table.labels("after").tolist(), strict=True)
    }
    ends = _ends(waits, dict(zip(names, duration.tolist(), strict=True)))
    path, total = max(ends.values()), float(duration.sum())
    controls, told = {"tasks": float(len(names)), "edges": float(sum(map(len, waits.values())))}, list[str]()
    if "cost" in table.columns:
        cost = table.numbers("cost")
        controls["cost"] = float(np.nansum(cost))
        told += [f"{int(np.isnan(cost).sum())} tasks have no cost: the sum is too small"] if np.isnan(cost).any() else []
    else:
        told.append("no cost is given: a short path may have been dear")
    if len(names) > 1 and not any(waits.values()):
        told.append("no task waits for another: dependencies may be missing, and the path is the longest task")
    spread, notes = _makespan(table, names, duration, waits)
    shared = (*told, *notes)
    n = len(names)
    found = [
        Estimate("critical_path", path, None, None, None, n, "longest_path", unit, axis, {**controls, "total_work": total}, shared),
        Estimate("total_work", total, None, None, None, n, "sum", unit, axis, controls, shared),
        Estimate("parallelism", total / path if path else None, None, None, None, n, "work_over_path", "ratio", axis, controls, shared),
    ]
    return (
        found if spread is None else [*found, Estimate("makespan", spread, None, None, None, n, "measured", unit, axis, controls, shared)]
    )


def _ends(waits: Mapping[str, Sequence[str]], duration: Mapping[str, float]) -> dict[str, float]:
    """The earliest end of each task, worked out so that none is asked before those that it waits for."""
    ends: dict[str, float] = {}
    for name, before in waits.items():
        unknown = [one for one in before if one not in duration]
        if unknown:
            raise StatisticRefused(f"task {name!r} waits for {unknown[0]!r}, which is not in the table; allowed: tasks of the table")
    waiting = dict(waits)
    while waiting:
        ready = [name for name, before in waiting.items() if all(one in ends for one in before)]
        if not ready:
            raise StatisticRefused(f"tasks {', '.join(sorted(waiting)[:5])} wait for each other in a circle; allowed: an order without one")
        for name in ready:
            ends[name] = max((ends[one] for one in waiting[name]), default=0.0) + duration[name]
            del waiting[name]
    return ends


def _makespan(
    table: Table, names: Sequence[str], duration: Floats, waits: Mapping[str, Sequence[str]]
) -> tuple[float | None, tuple[str, ...]]:
    if "start" not in table.columns:
        return None, ()
    start = table.numbers("start")
    if np.isnan(start).any():
        return None, (f"{int(np.isnan(start).sum())} of {len(names)} starts are not known: there is no makespan",)
    begun = dict(zip(names, start.tolist(), strict=True))
    done = {name: begun[name] + float(length) for name, length in zip(names, duration, strict=True)}
    early = [name for name, before in waits.items() if any(done[one] > begun[name] + _TOLERANCE_S for one in before)]
    note = (f"{len(early)} tasks began before one that they wait for had ended, the first is {early[0]!r}",) if early else ()
    return max(done.values()) - min(begun.values()), note
