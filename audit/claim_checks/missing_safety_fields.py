"""A success rate alone hides how it was reached."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.claim_checks import CheckResult, Statement, answers, judged

FIELDS: Mapping[str, tuple[str, ...]] = {
    "success": ("success",), "conditions": ("condition",), "side effects": ("side_effect",), "recovery": ("recover",),
    "mean time": ("latency_mean", "mean_time"), "tail time": ("latency_p", "tail_time"),
    "cost": ("tokens", "tool_calls", "teacher_cost", "cost"),
}  # fmt: skip
SEVERAL: Mapping[str, tuple[str, ...]] = {"critical path": ("critical_path",), "total work": ("total_work",)}


@answers("missing_safety_fields")
def missing_safety_fields(subject: Statement, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a success rate is stated with conditions, side effects, recovery, mean and tail time, and cost; of several agents with path
    and total work as well.

    Reads the metrics that were measured with it, or the setting `card` of a claim (their names with commas), and `agents`.

    Source: the survey's reading rule P2, seven fields and two of several agents; audit predicate AUD-44.
    """
    if "success" not in subject.words or subject.compared:
        return [CheckResult("missing_safety_fields", "skip", f"{subject.metric} is not the success rate of a card")]
    if not subject.card and subject.series == "claimed":
        return [CheckResult("missing_safety_fields", "skip", "what is stated together with it is not listed: setting `card`")]
    wanted = {**FIELDS, **(SEVERAL if (subject.number("agents") or 1) > 1 else {})}
    missing = [name for name, begins in wanted.items() if not any(metric.startswith(begins) for metric in subject.card)]
    faults = [{"missing": missing}] if missing else []
    measured = {"fields": len(wanted) - len(missing), "of": len(wanted), "missing": missing}

    return [
        judged(
            "missing_safety_fields",
            faults,
            why="the card lacks fields",
            remedy="measure them, or say in the boundary that they are not known",
            measured=measured,
            evidence_event_ids=(subject.event_id,),
        )
    ]
