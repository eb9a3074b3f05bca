"""States can be viewed, compared, put to rest and restored as the World contract says. Runs worlds."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged
from audit.run import Broken, guarded
from ledger.canonical import canonical_bytes


@answers("runtime.state_contract", needs=("runtime.seed_control",))
def runtime_state_contract(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether, at the first and the last state of the reference, looking changes nothing, a snapshot restores to the same digest, and
    `diff` is empty exactly between equal states.

    Source: OpenEnv RFC 008, runtime.state_contract.
    """
    world = subject.world
    end = subject.start if subject.reference is None else subject.reference.walk.states[-1]
    faults = []
    for place, state in (("first", subject.start), ("last", end)):
        digest = world.digest(state)
        canonical_bytes(world.view(state), allow_nul=True)
        if world.digest(state) != digest:
            faults.append(f"looking at the {place} state changes it")
        snapshot = world.snapshot(state)
        restored = guarded(lambda snapshot=snapshot: world.restore(snapshot))  # type: ignore[misc]
        if isinstance(restored, Broken):
            faults.append(f"the {place} state does not restore: {restored.error}")
            continue
        if snapshot.snapshot_id != digest:
            faults.append(f"the snapshot of the {place} state is called {snapshot.snapshot_id[:12]}; its digest is {digest[:12]}")
        if world.digest(restored) != digest:
            faults.append(f"the {place} state restores to digest {world.digest(restored)[:12]}; it had {digest[:12]}")
        if world.diff(state, restored).changes:
            faults.append(f"the {place} state differs from its restored self at {world.diff(state, restored).changes[0].path}")
    same = world.digest(subject.start) == world.digest(end)
    if bool(world.diff(subject.start, end).changes) == same:
        faults.append(f"first and last state have {'equal' if same else 'other'} digests, and diff says the opposite")
    measured = {"fidelity": world.fidelity, "states": 2}
    remedy = "make states values: a view, a snapshot and a digest of the same thing"
    return [judged("runtime.state_contract", faults, why="the state contract is broken", remedy=remedy, measured=measured)]
