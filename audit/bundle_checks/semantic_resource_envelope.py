"""The reference fits into what the harness allows. Runs worlds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged


@answers("semantic.resource_envelope")
def semantic_resource_envelope(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether the reference's calls, one an answer and one answer more to end each turn, stay within the harness's limits.

    Source: OpenEnv RFC 008, semantic.resource_envelope.
    """
    if subject.reference is None:
        return [CheckResult("semantic.resource_envelope", "skip", "there is no reference to measure", depends_on="semantic.oracle_max")]
    turns = len(subject.draft.request["turns"])
    per_turn = Counter(step.turn for step in subject.reference.walk.steps)
    needed = {"calls_per_turn": max(per_turn.values(), default=0) + 1, "calls": len(subject.reference.walk.steps) + turns}
    faults = [
        {"limit": name, "allowed": subject.limits[name], "needed": number}
        for name, number in needed.items()
        if name in subject.limits and subject.limits[name] < number
    ]
    remedy = "shorten the task or seal it with a roomier harness"
    return [judged("semantic.resource_envelope", faults, why="the reference does not fit", remedy=remedy, measured=needed)]
