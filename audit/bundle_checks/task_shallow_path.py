"""No short cut: the verifier accepts nothing that leaves out a part of what the reference changes. Runs worlds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged
from audit.bundle_subject import Attempt


@answers("task.shallow_path", needs=("runtime.episode_determinism", "semantic.oracle_max"))
def task_shallow_path(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether the verifier accepts a path with fewer state changes that ends elsewhere, and whether the reference has enough of them.

    Tried are no call, each single state-changing call, and the reference without one of them; from each one that is accepted more is taken
    away until nothing more can be, so that the evidence is the shortest path found. A shorter path to the same end is no short cut.

    Source: CLI-Universe (digest 31), shallow oracle paths; OpenEnv RFC 008, the canary.
    """
    reference = subject.reference
    assert reference is not None
    least = int(policy["shallow_changes"])
    faults: list[Any] = []
    if len(subject.writes) < least:
        faults.append(f"the reference changes the state {len(subject.writes)} times, needed {least}")
    tried = 0
    for kept in _candidates(subject.writes):
        tried += 1
        attempt = _without(subject, kept)
        if attempt.accepted and attempt.material != reference.material:
            kept, shortest = _shrunk(subject, kept, attempt)
            faults.append({"state_changes": len(kept), "of": len(subject.writes), **shortest.as_json()})
            break
    measured = {"state_changes": len(subject.writes), "tried": tried}
    remedy = "let the verifier ask for every change, or ask for less in the request"
    return [judged("task.shallow_path", faults, why="there is a short cut", remedy=remedy, measured=measured)]


def _candidates(writes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Which state-changing calls to keep: none, each alone, all but one."""
    if not writes:
        return
    yield ()
    if len(writes) > 1:
        yield from ((index,) for index in writes)
    if len(writes) > 2:
        yield from (tuple(other for other in writes if other != index) for index in writes)


def _without(subject: BundleSubject, kept: Sequence[int]) -> Attempt:
    assert subject.reference is not None
    left_out = set(subject.writes) - set(kept)
    steps = [step for index, step in enumerate(subject.reference.walk.steps) if index not in left_out]
    return subject.attempt(f"{len(kept)} of {len(subject.writes)} state changes", steps)


def _shrunk(subject: BundleSubject, kept: tuple[int, ...], attempt: Attempt) -> tuple[tuple[int, ...], Attempt]:
    """The smallest accepted part that is found by taking away one call at a time."""
    for index in kept:
        fewer = tuple(other for other in kept if other != index)
        smaller = _without(subject, fewer)
        if smaller.accepted:
            return _shrunk(subject, fewer, smaller)
    return kept, attempt
