"""A verdict passes because its conditions passed, not because none failed. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._faults import Fault, found, skipped


@answers("missing_test_is_not_pass", explains=("verdict_details_present", "subcheck_vs_reward"))
def missing_test_is_not_pass(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether each program's verdict that passed has a condition in its basis, and all of them say that they passed.

    Source: case I2.
    """
    own = [(event_id, body) for event_id, body in subject.judged if body.verifier_kind in ("program", "state_diff") and body.passed]
    if not own:
        return skipped("missing_test_is_not_pass", "no program gave a verdict that passed")
    faults = []
    for event_id, body in own:
        basis = [condition.status for condition in body.conditions if condition.in_basis]
        if not basis or any(status != "passed" for status in basis):
            faults.append(Fault({"passed": True, "basis": len(basis), "not_passed": sum(s != "passed" for s in basis)}, (event_id,)))
    return [
        found(
            "missing_test_is_not_pass", faults, why="a verdict passed without a condition that did", kind="false_accept",
            remedy="count a test that did not run as not passed", measured={"verdicts": len(own)},
        )
    ]  # fmt: skip
