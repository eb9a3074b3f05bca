"""Doing nothing is not enough: s0 resets well, does not pass the final test, and stays clearly below the reference. Runs worlds."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged
from ledger.canonical import canonical_bytes

_IDS = ("task.initial_state_test", "task.final_state_test_fails_on_s0", "semantic.canary_floor", "semantic.floor_gap")


@answers(*_IDS)
def floor(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether the initial state is a sound one that is not the goal, the verifier rejects it, and the measured floor leaves a margin.

    The floor is measured, never declared: the highest reward of no call at all and of the declared wrong paths.

    Source: OpenEnv RFC 008, semantic.canary_floor and semantic.floor_gap; Tmax (2606.23321), test_initial_state and test_final_state.
    """
    reference, no_op = subject.reference, subject.no_op
    canonical_bytes(subject.start_view, allow_nul=True)
    unsound: list[Any] = []
    if not subject.start_view:
        unsound.append("the initial state is empty")
    if reference is not None and reference.material == subject.start_material and subject.writes:
        unsound.append("the initial state is the goal: the reference ends where it began")
    # No call at all ends at s0, so its verdict is the final test on the initial state.
    told = {item.name: item.status for item in no_op.verdict.conditions}
    passes = [{"conditions": told}] if no_op.accepted else []
    low = [(attempt.name, subject.rewarded(attempt.verdict)) for attempt in (no_op, *(attempt for attempt, _ in subject.wrong))]
    canary = subject.rewarded(no_op.verdict)
    rewarded = [no_op.as_json()] if canary is None or canary > policy["floor_most"] else []
    numbers = [value for _, value in low if value is not None]
    top = None if reference is None else subject.rewarded(reference.verdict)
    measured = {"floor": max(numbers, default=None), "reference": top, "paths": len(low)}
    results = [
        judged(_IDS[0], unsound, why="the initial state is no start", remedy="repair the initial state", measured={"sound": not unsound}),
        judged(
            _IDS[1], passes, why="the verifier accepts the initial state", remedy="ask for something that is not done yet",
            measured={"passed": no_op.verdict.passed, "conditions": told},
        ),
        judged(
            _IDS[2], rewarded, why=f"no call at all earns {canary}, allowed {policy['floor_most']}", measured={"reward": canary},
            remedy="make a condition that an untouched state fails",
        ),
    ]  # fmt: skip
    if top != 1 or not numbers:
        return [
            *results,
            CheckResult(_IDS[3], "skip", "there is no rewarded reference to compare with", measured, depends_on="semantic.oracle_max"),
        ]
    gap = top - max(numbers)
    near = [{"path": name, "reward": value} for name, value in low if value is not None and top - value < policy["floor_gap"]]
    why = f"the reference earns {gap:.3f} more than the best wrong path, needed {policy['floor_gap']}"
    remedy = "make the verifier tell them apart"
    return [*results, judged(_IDS[3], near, why=why, remedy=remedy, measured={**measured, "gap": gap})]
