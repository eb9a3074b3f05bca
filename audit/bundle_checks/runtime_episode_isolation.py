"""An episode leaves no trace in the next one, and a fork none in its siblings. Runs worlds."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged
from audit.paths import steps_of, walk


@answers("runtime.episode_isolation", needs=("runtime.seed_control",))
def runtime_episode_isolation(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a reset after an episode gives the state of before, and calls on one of two forks leave the other alone.

    Source: OpenEnv RFC 008, runtime.episode_isolation.
    """
    world, draft = subject.world, subject.draft
    path = steps_of(subject.solution.get("turns", ()))
    # The subject's own start was reset before its episodes, so it shows what they leave behind.
    start = subject.start
    before = world.digest(start)
    first, second = world.fork(world.snapshot(start), 2)
    walked = walk(world, first, path)
    after = {
        "the state that was forked": world.digest(start),
        "the sibling fork": world.digest(second),
        "the next reset": world.digest(world.reset(draft, seed=0)),
    }
    faults = [{"place": place, "before": before, "after": seen} for place, seen in after.items() if seen != before]
    measured = {"calls": len(walked.trace), "places": len(after)}
    remedy = "keep nothing between episodes: no class attributes, no shared lists, no files"
    return [judged("runtime.episode_isolation", faults, why="an episode leaks", remedy=remedy, measured=measured)]
