"""Evaluations and comparisons as tables and as JSON. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table as Shown

from audit.behaviour import Behaviour, BehaviourCount
from audit.evaluation import Cell, Evaluation
from audit.evaluation_compare import Comparison
from audit.statistics import Estimate
from ledger.terminal import table

_WHO = ("version or rule", "seed", "stage", "T")
_COSTS = {
    "side_effects": "side effects", "tokens_in": "tokens in", "tokens_out": "tokens out", "tool_calls": "tool calls",
    "model_calls": "model calls", "latency_mean": "mean s", "latency_p50": "p50 s", "latency_p95": "p95 s", "latency_p99": "p99 s",
}  # fmt: skip


def number(estimate: Estimate | None, *, digits: int = 3) -> str:
    """The value with its interval; `missing` where there is none."""
    if estimate is None or estimate.value is None:
        return "missing"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.{digits}f}"
    return f"{estimate.value:.{digits}f} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


def evaluation_tables(evaluation: Evaluation, found: Sequence[Behaviour]) -> Iterator[Shown]:
    """For each slice and split: success and what it is of, conditions, costs, and behaviour by condition."""
    level = f"{evaluation.question.level:.0%}"
    for place in dict.fromkeys((cell.key.slice, cell.key.split) for cell in evaluation.cells):
        cells = [cell for cell in evaluation.cells if (cell.key.slice, cell.key.split) == place]
        title = f"slice {place[0]}, split {place[1]}"
        yield _success(cells, f"{title}: success with {level} intervals")
        yield _conditions(cells, f"{title}: share of rollouts that pass a condition")
        yield _costs(cells, f"{title}: means a measured rollout, and shares of how rollouts ended")
        told = [item for item in found if (item.key.slice, item.key.split) == place]
        if told:
            yield _behaviour(told, f"{title}: acted / opportunities, by what the request wants")


def comparison_tables(found: Comparison, *, flips: int) -> Iterator[Shown]:
    """The paired numbers, and the first so many tasks that flipped."""
    place = f"slice {found.slice}, split {found.split}, temperature {_plain(found.temperature)}"
    rows = [
        ("success before", number(found.success_before), found.success_before.method, found.success_before.n),
        ("success after", number(found.success_after), found.success_after.method, found.success_after.n),
        ("success gain, paired", number(found.success_gain), found.success_gain.method, found.success_gain.n),
        ("reward gain, paired", number(found.reward_gain), found.reward_gain.method, found.reward_gain.n),
        ("gained - lost, McNemar", number(found.gain), found.gain.method, found.gain.n),
        ("p-value, McNemar", _value(found.p_value), found.p_value.method, found.p_value.n),
    ]
    yield table(("number", f"value, {found.success_gain.level or 0.95:.0%}", "interval", "n"), rows, title=place)
    counts = found.gain.controls
    agreed = f"{counts['both']:.0f} passed by both, {counts['neither']:.0f} by neither"
    title = f"flips: {counts['gained']:.0f} gained, {counts['lost']:.0f} lost, {agreed}"
    shown = sorted(found.flips, key=lambda flip: (flip.gained, flip.task, flip.seed, flip.sample))[:flips]
    lines = [
        ("gained" if flip.gained else "lost", flip.task, flip.seed, flip.sample, flip.before_rollout_id, flip.after_rollout_id)
        for flip in shown
    ]
    yield table(("flip", "task", "seed", "sample", "before", "after"), lines, title=f"{title}; {len(lines)} of {len(found.flips)} shown")


def split_table(found: Sequence[Estimate], title: str) -> Shown:
    """The parts of a gain."""
    return table(("part", "value", "interval", "n"), [(item.name, number(item), item.method, item.n) for item in found], title=title)


def evaluation_json(evaluation: Evaluation, found: Sequence[Behaviour], reads: Mapping[str, int]) -> dict[str, Any]:
    """All of an evaluation as one JSON object."""
    cells = [
        {
            **cell.key.__dict__, "scripted": cell.scripted, "stage": cell.stage, "round": cell.round, "step": cell.step, "seed": cell.seed,
            "counts": cell.counts.as_json(), "estimates": {name: estimate.as_json() for name, estimate in cell.estimates.items()},
        }
        for cell in evaluation.cells
    ]  # fmt: skip
    behaviour = [
        {
            **item.key.__dict__, "scripted": item.scripted, "rollouts": item.rollouts, "unclassified": item.unclassified,
            "counts": [{**count.__dict__, "right": count.right} for count in item.counts],
        }
        for item in found
    ]  # fmt: skip
    return {
        "position": evaluation.position, "runs": [run.run_id for run in evaluation.runs], "cells": cells, "behaviour": behaviour,
        "unattributed": dict(evaluation.unattributed), "test_reads": dict(reads), "notes": list(evaluation.notes),
    }  # fmt: skip


def comparison_json(found: Comparison) -> dict[str, Any]:
    """All of a comparison as one JSON object."""
    names = ("success_before", "success_after", "success_gain", "reward_gain", "gain", "p_value")
    return {
        "slice": found.slice, "split": found.split, "temperature": found.temperature, "before": list(found.before),
        "after": list(found.after), "axis": found.axis, "unpaired": found.unpaired, "regressed": found.regressed,
        "notes": list(found.notes), "flips": [flip.__dict__ for flip in found.flips],
        **{name: getattr(found, name).as_json() for name in names},
    }  # fmt: skip


def caveats(evaluation: Evaluation) -> list[str]:
    """Each caveat of the success rates once, with the first cell that it belongs to."""
    told: dict[str, str] = {}
    for cell in evaluation.cells:
        for note in cell.estimates["success"].caveats:
            told.setdefault(note, f"{cell.key.policy} {cell.key.model_version}, slice {cell.key.slice}")
    return [f"{note} ({where})" for note, where in told.items()]


def _who(cell: Cell) -> tuple[str, int, str, str]:
    stage = "fixed rule" if cell.scripted else cell.stage or "-"
    at = stage if cell.round is None else f"{stage} round {cell.round}"
    return cell.key.policy if cell.scripted else cell.key.model_version, cell.seed, at, _plain(cell.key.temperature)


def _success(cells: Sequence[Cell], title: str) -> Shown:
    numbers = ("success", "of expected", "reward", "measured / expected", "failed", "masked", "omitted", "unknown")
    rows = []
    for cell in cells:
        counts = cell.counts
        why = ", ".join(f"{name} {count}" for name, count in counts.failures.items())
        rows.append((
            *_who(cell), number(cell.estimates["success"]), number(cell.estimates["success_of_expected"]),
            number(cell.estimates["reward"]), f"{counts.measured} / {counts.expected}", why or "0", counts.masked, counts.omitted,
            counts.unknown,
        ))  # fmt: skip
    return table((*_WHO, *numbers), rows, title=title)


def _conditions(cells: Sequence[Cell], title: str) -> Shown:
    names = sorted({name for cell in cells for name in cell.estimates if name.startswith("condition:")})
    rows = [(*_who(cell), *(_value(cell.estimates.get(name)) for name in names)) for cell in cells]
    return table((*_WHO, *(name.partition(":")[2] for name in names)), rows, title=title)


def _costs(cells: Sequence[Cell], title: str) -> Shown:
    ends = sorted({name for cell in cells for name in cell.estimates if name.startswith("ended_by:")})
    rows = [(*_who(cell), *(_value(cell.estimates.get(name)) for name in (*_COSTS, *ends))) for cell in cells]
    header = (*_WHO, *_COSTS.values(), *(name.partition(":")[2] for name in ends))
    return table(header, rows, title=title)


def _behaviour(found: Sequence[Behaviour], title: str) -> Shown:
    keys = sorted({(not count.wanted, count.condition) for item in found for count in item.counts})
    rows = []
    for skip, condition in keys:
        cells = []
        for item in found:
            count = next((c for c in item.counts if (not c.wanted, c.condition) == (skip, condition)), None)
            cells.append("-" if count is None else _acted(count))
        rows.append(("hold back" if skip else "act", condition, *cells))
    heads = [item.key.policy if item.scripted else f"{item.key.model_version} at {_plain(item.key.temperature)}" for item in found]
    return table(("wanted", "condition", *heads), rows, title=title)


def _acted(count: BehaviourCount) -> str:
    seen = f", looked at {count.looked_at}" if 0 < count.looked_at < count.total else ""
    return f"{count.acted}/{count.total}{seen}"


def _value(estimate: Estimate | None) -> str:
    return "-" if estimate is None else "missing" if estimate.value is None else f"{estimate.value:.3g}"


def _plain(temperature: float | None) -> str:
    return "-" if temperature is None else f"{temperature:g}"
