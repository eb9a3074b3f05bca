"""What is not there does not count as passed: a state or a verdict of which parts are missing. Pure: looks at verdicts given."""

from collections.abc import Sequence
from random import Random

from audit.probes import CheckResult, ProbeSubject, Run, answers, judged
from audit.probes._verdicts import shown


@answers("missing_test_is_not_pass")
def missing_test_is_not_pass(subject: ProbeSubject, run: Run, *, rng: Random | None = None) -> Sequence[CheckResult]:
    """Whether no end passes of which a part is missing, and no verdict passes that lacks a condition which it has on the task's reference.

    A failure and an error are both right answers to a missing part.

    Source: reports I2; https://github.com/SWE-bench/SWE-smith/issues/24.
    """
    missing = subject.told("missing")
    faults = [shown(trial, said) for trial, said in missing if said.passed is True]
    asked = {trial.bundle_id: {c.name for c in said.conditions if c.in_basis} for trial, said in subject.told("reference")}
    for trial, said in zip(subject.trials, subject.verdicts, strict=True):
        gone = asked.get(trial.bundle_id, set()) - {condition.name for condition in said.conditions}
        if said.passed is True and gone:
            faults.append(shown(trial, said, lacks=sorted(gone)))
    if not missing:
        return [CheckResult("missing_test_is_not_pass", "skip", "nothing could be taken out of a state")]
    return [
        judged(
            "missing_test_is_not_pass", faults, why="something that is missing counts as passed", fault="false_accept",
            measured={"ends": len(missing)}, remedy="ask for an explicit pass of every condition",
        )
    ]  # fmt: skip
