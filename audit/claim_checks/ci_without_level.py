"""An interval means nothing without its level."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.claim_checks import CheckResult, Statement, answers, judged


@answers("ci_without_level")
def ci_without_level(subject: Statement, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether an interval states its level, and holds its own value.

    Reads `low` and `high`, and of a claim the setting `level` (between 0 and 1).

    Source: AutoEnvScaling, whose ± has no level; audit predicate AUD-36.
    """
    if subject.low is None and subject.high is None:
        return [CheckResult("ci_without_level", "skip", "no interval is stated")]
    faults: list[Any] = []
    if subject.level is None:
        faults.append({"level": "not stated", "interval": [subject.low, subject.high]})
    elif not 0 < subject.level < 1:
        faults.append({"level": subject.level, "allowed": "more than 0 and less than 1"})
    outside = subject.value is not None and (
        (subject.low is not None and subject.value < subject.low) or (subject.high is not None and subject.value > subject.high)
    )
    if outside:
        faults.append({"value": subject.value, "interval": [subject.low, subject.high]})
    measured = {"level": subject.level}

    return [
        judged(
            "ci_without_level",
            faults,
            why="the interval cannot be read",
            remedy="state the level, such as 0.95, and what the interval is over",
            measured=measured,
            evidence_event_ids=(subject.event_id,),
        )
    ]
