"""The longest branch is neither the work nor the cost."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.claim_checks import CheckResult, Statement, answers, judged


@answers("critical_path_without_total_work")
def critical_path_without_total_work(subject: Statement, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a critical path is stated beside the total work and the cost.

    Reads the settings `total_work` and `cost`, or the metrics `total_work` and `cost` that were measured with it.

    Source: Kimi K2.5 and ToolOrchestra; audit predicate AUD-26.
    """
    if "critical" not in subject.words:
        return [CheckResult("critical_path_without_total_work", "skip", f"{subject.metric} is no critical path")]
    total = subject.number("total_work")
    missing = [name for name in ("total_work", "cost") if subject.number(name) is None and name not in subject.card]
    faults: list[Any] = [{"missing": missing}] if missing else []
    if total is not None and subject.value is not None and total < subject.value:
        faults.append({"total_work": total, "critical path": subject.value})
    measured = {"missing": missing, "total_work": total}

    return [
        judged(
            "critical_path_without_total_work",
            faults,
            why="a path without its work",
            remedy="show total work and cost beside it: audit.statistics critical_path",
            measured=measured,
            evidence_event_ids=(subject.event_id,),
        )
    ]
