"""The verifier sees a write that nobody asked for, made beside a right solution. Runs worlds."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged


@answers("verifier.side_effects_seen", needs=("runtime.episode_determinism", "semantic.oracle_max"))
def verifier_side_effects_seen(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether each stray write after the reference, in a place that the reference leaves alone, is rejected or listed as a side effect.

    Source: MobileGym (2605.26114), side effects by state difference.
    """
    tried = [attempt for mutant, attempt in subject.mutants if mutant.kind.startswith("stray ")]
    if not tried:
        return [CheckResult("verifier.side_effects_seen", "skip", "no tool could be made to write where the reference does not")]
    unseen = [attempt for attempt in tried if attempt.verdict.passed is not False and not attempt.verdict.side_effects]
    faults = [
        {
            "write": attempt.walk.steps[-1].as_json(),
            "changed": [item.path for item in subject.changed(attempt)],
            "passed": attempt.verdict.passed,
        }
        for attempt in unseen
    ]
    measured = {"stray_writes": len(tried), "seen": len(tried) - len(unseen), "tools": [attempt.name for attempt in tried]}
    remedy = "compare everything that the task does not name with the initial state"
    return [judged("verifier.side_effects_seen", faults, why="a stray write goes unseen", remedy=remedy, measured=measured)]
