"""Every observation is text with an error class or none. Runs worlds."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged
from ledger.canonical import canonical_bytes
from ledger.errors import CanonicalError


@answers("runtime.observation_schema")
def runtime_observation_schema(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether what the reference and the declared other paths saw is storable text, no longer than `observation_chars`.

    Source: OpenEnv RFC 008, runtime.observation_schema.
    """
    paths = [*([] if subject.reference is None else [subject.reference]), *subject.equivalent, *(attempt for attempt, _ in subject.wrong)]
    faults: list[Any] = []
    seen = longest = 0
    for attempt in paths:
        for step in attempt.walk.trace:
            seen += 1
            content, error_class = step.observation.content, step.observation.error_class
            if not isinstance(content, str) or not (error_class is None or (isinstance(error_class, str) and error_class)):
                faults.append({"call": step.call.name, "content": type(content).__name__, "error_class": error_class})
                continue
            longest = max(longest, len(content))
            if len(content) > policy["observation_chars"]:
                faults.append({"call": step.call.name, "characters": len(content), "allowed": policy["observation_chars"]})
            try:
                canonical_bytes(content, allow_nul=True)
            except CanonicalError as error:
                faults.append({"call": step.call.name, "content": str(error)})
    measured = {"observations": seen, "longest": longest}
    remedy = "answer with text, and name an error class for every refusal"
    return [judged("runtime.observation_schema", faults, why="an observation has no allowed form", remedy=remedy, measured=measured)]
