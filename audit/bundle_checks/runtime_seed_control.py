"""A reset under the same seed gives the same state, and where the world is random another seed gives another. Runs worlds."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged
from audit.paths import steps_of, trace_digest, walk


@answers("runtime.seed_control")
def runtime_seed_control(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether equal seeds give equal resets, and, where the world is `stochastic`, at least two of `seeds_varied` seeds different ones.

    A reset that drops its seed passes the first half alone. What differs may be the state at once or what the reference's calls draw
    later. A world is random when its attribute `stochastic` or the draft's `spec["stochastic"]` says so.

    Source: OpenEnv RFC 008, runtime.seed_control.
    """
    world, draft = subject.world, subject.draft
    stochastic = bool(getattr(world, "stochastic", False) or draft.spec.get("stochastic"))
    seeds = list(range(int(policy["seeds_varied"]) if stochastic else 2))
    first = [world.digest(world.reset(draft, seed=seed)) for seed in seeds]
    again = [world.digest(world.reset(draft, seed=seed)) for seed in seeds]
    faults: list[Any] = [
        {"seed": seed, "first": one, "again": other} for seed, one, other in zip(seeds, first, again, strict=True) if one != other
    ]
    distinct = len(set(first))
    if stochastic and not faults and distinct == 1:
        path = steps_of(subject.solution.get("turns", ()))
        distinct = len({trace_digest(world, walk(world, world.reset(draft, seed=seed), path)) for seed in seeds})
        if distinct == 1:
            faults.append(f"{len(seeds)} seeds give one and the same episode, though the world says that it is random")
    measured = {"seeds": len(seeds), "stochastic": stochastic, "distinct_episodes": distinct, "equal_for_equal_seeds": first == again}
    remedy = "draw everything from the seed that reset is given, and from nothing else"
    return [judged("runtime.seed_control", faults, why="reset does not obey its seed", remedy=remedy, measured=measured)]
