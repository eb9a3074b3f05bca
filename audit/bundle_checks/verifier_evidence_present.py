"""Every condition has a name of its own and shows by which rows, calls or differences it was decided. Runs worlds."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged

_IDS = ("verifier.evidence_present", "runtime.rubric_introspectable")


@answers(*_IDS)
def verifier_evidence_present(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether each condition of the verdicts on reference and no-op carries evidence, and the conditions are named once and alike in both.

    An empty object, list or text is no evidence.

    Source: WorkRover (2610.18067) and audit rule AUD-05; OpenEnv RFC 008, runtime.rubric_introspectable.
    """
    attempts = [subject.no_op] if subject.reference is None else [subject.reference, subject.no_op]
    conditions = [(attempt.name, item) for attempt in attempts for item in attempt.verdict.conditions]
    faults: list[Any] = [
        {"path": name, "condition": item.name, "evidence": item.evidence}
        for name, item in conditions
        if item.evidence in (None, "", {}, [])
    ]
    if not conditions:
        faults.append("the verifier has no condition")
    names = {attempt.name: [item.name for item in attempt.verdict.conditions] for attempt in attempts}
    odd: list[Any] = [
        {"path": path, "names": listed} for path, listed in names.items() if len(set(listed)) < len(listed) or not all(listed)
    ]
    if len({tuple(sorted(listed)) for listed in names.values()}) > 1:
        odd.append({"names": names})
    return [
        judged(
            _IDS[0], faults, why="a condition shows nothing", remedy="cite the artefact by which the condition was decided",
            measured={"conditions": len(conditions)},
        ),
        judged(
            _IDS[1], odd, why="conditions are not named once and alike", remedy="give each condition one short, stable name",
            measured={"names": names[attempts[0].name]},
        ),
    ]  # fmt: skip
