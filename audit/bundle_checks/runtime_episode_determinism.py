"""The same calls from the same seed give the same observations and states. Runs worlds."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged
from audit.paths import steps_of, trace_digest, walk


@answers("runtime.episode_determinism")
def runtime_episode_determinism(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether `episodes_repeated` fresh episodes of the reference agree in every observation and in the digest of every state.

    Source: OpenEnv RFC 008, runtime.episode_determinism.
    """
    world, draft = subject.world, subject.draft
    path = steps_of(subject.solution.get("turns", ()))
    times = int(policy["episodes_repeated"])
    seen = [] if subject.reference is None else [trace_digest(world, subject.reference.walk)]
    seen += [trace_digest(world, walk(world, world.reset(draft, seed=0), path)) for _ in range(times - len(seen))]
    faults = [{"episode": number, "first": seen[0], "digest": item} for number, item in enumerate(seen) if item != seen[0]]
    measured = {"episodes": times, "calls": len(path), "distinct": len(set(seen))}
    remedy = "take clocks, random numbers and iteration over sets out of the world, or draw them from the seed"
    return [judged("runtime.episode_determinism", faults, why="episodes differ", remedy=remedy, measured=measured)]
