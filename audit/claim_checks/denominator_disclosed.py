"""A rate is shown with what it is of and what was expected."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.claim_checks import CheckResult, Statement, answers, judged

RATES = frozenset({"success", "accuracy", "pass", "pass@1", "solved"})


@answers("denominator_disclosed")
def denominator_disclosed(subject: Statement, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a rate states both denominators, and measured + masked + failed + omitted do not exceed what was expected.

    Reads the settings `expected`, `measured`, `masked`, `failed`, `omitted` and `passed`; what is left of `expected` is unknown.

    Source: inspect_ai 3781, 2914, 4412 and 4485: 80 of 100 right with 10 errors is 0.80 and 0.889, and only one of them was shown.
    """
    if not subject.words & RATES or subject.compared:
        return [CheckResult("denominator_disclosed", "skip", f"{subject.metric} is no rate of rollouts")]
    counts = {name: subject.number(name) for name in ("expected", "measured", "masked", "failed", "omitted")}
    expected, taken = counts["expected"], counts["measured"]
    if expected is None or taken is None:
        faults: list[Any] = [{"not stated": [name for name in ("expected", "measured") if counts[name] is None]}]
        unknown = None
    else:
        unknown = expected - sum(count or 0.0 for name, count in counts.items() if name != "expected")
        faults = [{"counts": counts, "unknown": unknown}] if unknown < 0 else []
    measured: dict[str, Any] = {**counts, "unknown": unknown}
    passed = subject.number("passed")
    if passed is not None and expected and taken:
        measured.update(of_expected=passed / expected, of_measured=passed / taken)
        share = None if subject.value is None else subject.value / (100 if subject.unit in ("%", "percent", "points") else 1)
        if share is not None and min(abs(share - passed / expected), abs(share - passed / taken)) > float(policy["rounding"]):
            faults.append({"value": subject.value, "of_expected": passed / expected, "of_measured": passed / taken})

    return [
        judged(
            "denominator_disclosed",
            faults,
            why="the denominators are not disclosed",
            remedy="show the rate of what was measured and of what was expected, with the counts between",
            measured=measured,
            evidence_event_ids=(subject.event_id,),
        )
    ]
