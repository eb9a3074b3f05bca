"""A task can be made again: a generated one names its seed, one from a source names which. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged


@answers("static.task_distribution_pinning")
def static_task_distribution_pinning(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether provenance holds a whole-number seed or a source, without which nobody can tell what the task was drawn from.

    Source: OpenEnv RFC 008, static.task_distribution_pinning.
    """
    provenance = subject.draft.provenance
    seed, source = provenance.get("seed"), provenance.get("source")
    seeded = isinstance(seed, int) and not isinstance(seed, bool)
    faults = [] if seeded or source else [f"seed is {seed!r} and source is {source!r}; allowed: a whole number, or a source"]
    measured = {"seed": seed, "source": source, "proposer": provenance.get("proposer")}
    return [
        judged(
            "static.task_distribution_pinning", faults, why="the task cannot be drawn again", remedy="record seed or source in provenance",
            measured=measured,
        )
    ]  # fmt: skip
