"""Reported times fit what was measured, and a rollout that used up its time does not say that it finished. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._faults import Fault, found, skipped


@answers("elapsed_vs_budget")
def elapsed_vs_budget(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a `finished` rollout stayed below `budget_share` of its harness's `wall_s`, and the reported seconds are those measured.

    Tool time is compared with the sum over the world's tool calls, and the whole with its longest model call, each with `seconds_off`
    for rounding and waiting.

    Source: case A1.
    """
    if subject.ended is None:
        return skipped("elapsed_vs_budget", "the rollout has not ended")
    (end_id, end), off = subject.ended, float(policy["seconds_off"])
    budget = None if subject.harness is None else subject.harness.limits.get("wall_s")
    used = max([end.wall_s or 0.0] if budget is None or end.sampling_s is None or end.tool_s is None else [end.sampling_s + end.tool_s])
    measured: dict[str, Any] = {"budget_s": budget, "used_s": used, "wall_s": end.wall_s, "tool_s": end.tool_s}
    faults, looked = [], 0
    if budget is not None and end.wall_s is not None:
        looked += 1
        if end.ended_by == "finished" and used >= float(policy["budget_share"]) * budget:
            faults.append(Fault({"used_s": used, "budget_s": budget, "ended_by": end.ended_by}, (end_id,)))
    own = [(event_id, body.latency_s) for event_id, body in subject.tools if body.executed_by == "world"]
    if end.tool_s is not None and own:
        looked += 1
        total = sum(latency for _, latency in own)
        if abs(total - end.tool_s) > off + 0.05 * total:
            faults.append(Fault({"tool_s": end.tool_s, "measured_s": total}, (*(event_id for event_id, _ in own), end_id)))
    longest = max((call for call in subject.calls if call.answered is not None), key=lambda call: _latency(call), default=None)
    if end.wall_s is not None and longest is not None:
        looked += 1
        if _latency(longest) > end.wall_s + off:
            faults.append(Fault({"wall_s": end.wall_s, "one_call_s": _latency(longest)}, (longest.answered_id, end_id)))
    if not looked:
        return skipped("elapsed_vs_budget", "nobody measured the rollout's time")
    return [
        found(
            "elapsed_vs_budget", faults, why="times that are reported do not fit", kind="time_misreported", measured=measured,
            remedy="end by wall_clock when the time is used up, and report measured seconds",
        )
    ]  # fmt: skip


def _latency(call: Any) -> float:
    return 0.0 if call.answered is None else float(call.answered.latency_s)
