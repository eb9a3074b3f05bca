"""What the slots of one cell come to: one estimate a metric. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from audit.statistics import Estimate, Table
from audit.statistics.mean_value import mean_value
from audit.statistics.success_rate import success_rate
from audit.statistics.tail_latency import tail_latency
from ledger.evaluated import SlotLine

Value = Callable[[SlotLine], float | None]
_MEANS: dict[str, tuple[str, Value]] = {
    "reward": ("reward", lambda line: line.reward),
    "side_effects": ("side effects a rollout", lambda line: line.side_effects),
    "tokens_in": ("tokens a rollout", lambda line: line.tokens_in),
    "tokens_out": ("tokens a rollout", lambda line: line.tokens_out),
    "tool_calls": ("calls a rollout", lambda line: line.tool_calls),
    "model_calls": ("calls a rollout", lambda line: line.model_calls),
}
"""Metric to its unit and the value of a line, None where it is missing."""


def passed(line: SlotLine) -> float:
    """1 for a judged rollout that succeeded, 0 for one that did not."""
    return float(line.outcome == "succeeded")


def measures(
    attempted: Sequence[SlotLine], measured: Sequence[SlotLine], *, expected: int, level: float, draws: int
) -> dict[str, Estimate]:
    """Metric to estimate.

    `success` is of the measured, `success_of_expected` of all that was dispatched: the truth lies between them if everything that
    is missing had failed.

    Args:
        attempted: lines that are not masked, with those that broke or never began.
        measured: those of them that are evidence about the policy.
        expected: slots that were dispatched.
        level: of the intervals.
        draws: bootstrap draws of the success rate.
    """
    found = {"success": success(measured, level=level, draws=draws), "success_of_expected": _of_expected(measured, expected)}
    for name, (unit, value) in _MEANS.items():
        found[name] = _mean(measured, value, name, unit, level)
    for condition in sorted({item["name"] for line in measured for item in line.conditions if item["in_basis"]}):
        found[f"condition:{condition}"] = _share(measured, _status(condition), f"condition:{condition}", "share passed", level)
    found |= _latencies(measured, level)
    ended = [line for line in attempted if line.ended_by is not None]
    for how in sorted({line.ended_by for line in ended if line.ended_by is not None}):
        found[f"ended_by:{how}"] = _share(ended, _ended(how), f"ended_by:{how}", "share of ended", level)
    return found


def success(measured: Sequence[SlotLine], *, level: float, draws: int, seeds: Mapping[str, int] | None = None) -> Estimate:
    """The success rate with the widest of its intervals, clustered by bundle, and by seed where several runs are given with theirs."""
    rows = [{"passed": passed(line), "bundle": line.bundle_id, "seed": None if seeds is None else seeds[line.run_id]} for line in measured]
    cluster = ("bundle",) if seeds is None else ("bundle", "seed")
    table = Table.of(rows, ("passed", *cluster))
    found = success_rate(table, cluster=cluster, level=level, draws=draws)
    caveats = tuple(dict.fromkeys(note for estimate in found for note in estimate.caveats if estimate.method != "wilson"))
    return replace(found[0], name="success", caveats=caveats or found[0].caveats)


def _of_expected(measured: Sequence[SlotLine], expected: int) -> Estimate:
    value = sum(map(passed, measured)) / expected if expected else None
    caveats = () if len(measured) == expected else (f"{expected - len(measured)} of {expected} are not measured and count as not passed",)
    return Estimate("success_of_expected", value, None, None, None, expected, "none", "share", caveats=caveats)


def _mean(lines: Sequence[SlotLine], value: Value, name: str, unit: str, level: float) -> Estimate:
    table = Table.of([{"value": value(line), "bundle": line.bundle_id} for line in lines], ("value", "bundle"))
    return replace(mean_value(table, unit=unit, level=level)[0], name=name)


def _share(lines: Sequence[SlotLine], value: Value, name: str, unit: str, level: float) -> Estimate:
    table = Table.of([{"passed": value(line), "bundle": line.bundle_id} for line in lines], ("passed", "bundle"))
    return replace(success_rate(table, unit=unit, level=level, draws=0)[0], name=name)


def _latencies(measured: Sequence[SlotLine], level: float) -> dict[str, Estimate]:
    table = Table.of([{"latency_s": line.wall_s, "bundle": line.bundle_id} for line in measured], ("latency_s", "bundle"))
    found = tail_latency(table, level=level)
    return {f"latency_{estimate.name}": replace(estimate, name=f"latency_{estimate.name}") for estimate in found}


def _status(condition: str) -> Value:
    decided = {"passed": 1.0, "failed": 0.0}
    return lambda line: next((decided.get(item["status"]) for item in line.conditions if item["name"] == condition), None)


def _ended(how: str) -> Value:
    return lambda line: float(line.ended_by == how)
