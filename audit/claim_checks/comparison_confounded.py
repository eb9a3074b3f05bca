"""Two arms that differ in one factor alone, matched on a stated axis."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.claim_checks import CheckResult, Statement, answers, judged

COSTS = {
    "compute": "compute", "flops": "compute", "gpu": "compute", "cost": "money", "price": "money", "time": "time", "hours": "time",
    "speedup": "time", "tokens": "tokens",
}  # fmt: skip
"""Words of a metric to the axis on which its arms must have been matched."""


@answers("comparison_confounded")
def comparison_confounded(subject: Statement, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether the arms differ in at most one factor, and say what they were matched on.

    Reads the settings `arm.<name>.<factor>` of a claim; the axis of a claim or of a measured comparison. Arms matched on updates show
    nothing about compute, time or money: a metric of those needs its own axis.

    Source: the survey's reading rule P5 and S45, audit predicate AUD-35.
    """
    if not subject.compared:
        return [CheckResult("comparison_confounded", "skip", "it is no comparison of arms")]
    factors = sorted({factor for arm in subject.arms.values() for factor in arm})
    differing = [factor for factor in factors if len({repr(arm.get(factor, "not stated")) for arm in subject.arms.values()}) > 1]
    faults: list[Any] = []
    if len(differing) > 1:
        faults.append({"factors that differ": differing, "allowed": "one"})
    if subject.axis is None:
        faults.append({"matched axis": "not stated", "allowed": "updates, tokens, compute, time or money"})
    costs = subject.words & COSTS.keys()
    if subject.axis is not None and costs and subject.axis not in {COSTS[word] for word in costs}:
        faults.append({"matched axis": subject.axis, "metric": subject.metric})
    measured = {"arms": len(subject.arms), "differing": differing, "axis": subject.axis}

    return [
        judged(
            "comparison_confounded",
            faults,
            why="the comparison is confounded",
            remedy="change one factor at a time and name the axis that the arms were matched on",
            measured=measured,
            evidence_event_ids=(subject.event_id,),
        )
    ]
