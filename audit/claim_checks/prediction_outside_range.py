"""A fitted law says nothing beyond what it was fitted on."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.claim_checks import CheckResult, Statement, answers, judged


@answers("prediction_outside_range")
def prediction_outside_range(subject: Statement, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a prediction lies inside the fitted range of every axis.

    Reads the settings `at.<axis>`, `fitted.<axis>.low` and `fitted.<axis>.high`.

    Source: Agentic Data Scaling; audit predicate AUD-30.
    """
    places = subject.part("at")
    if not places:
        return [CheckResult("prediction_outside_range", "skip", "it is no prediction of a fitted law: no `at.` setting")]
    faults: list[Any] = []
    for axis in sorted(places):
        at, low, high = subject.number(f"at.{axis}"), subject.number(f"fitted.{axis}.low"), subject.number(f"fitted.{axis}.high")
        if at is None or low is None or high is None:
            faults.append({"axis": axis, "at": at, "fitted": [low, high], "needed": "all three"})
        elif not low <= at <= high:
            faults.append({"axis": axis, "at": at, "fitted": [low, high]})
    measured = {"axes": sorted(places)}

    return [
        judged(
            "prediction_outside_range",
            faults,
            why="extrapolation",
            remedy="call it an extrapolation, or measure there",
            measured=measured,
            evidence_event_ids=(subject.event_id,),
        )
    ]
