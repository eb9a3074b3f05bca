"""A verdict says what it looked at. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._faults import Fault, found, skipped


@answers("verdict_details_present")
def verdict_details_present(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether each completed verdict of the task's own verifier holds its conditions, and one that failed says what did.

    Side effects are a reason to fail, too. A person's verdict has its reason in the decision.

    Source: case H3.
    """
    own = [(event_id, body) for event_id, body in subject.judged if body.status == "completed" and body.verifier_kind != "human"]
    own = [item for item in own if item[1].role == "bundle"]
    if not own:
        return skipped("verdict_details_present", "the task's verifier gave no completed verdict")
    faults = []
    for event_id, body in own:
        failed = any(condition.status != "passed" for condition in body.conditions) or body.side_effect_count > 0
        if not body.conditions or (body.passed is False and not failed):
            faults.append(Fault({"passed": body.passed, "conditions": len(body.conditions), "says_why": failed}, (event_id,)))
    return [
        found(
            "verdict_details_present", faults, why="a verdict does not say what it rests on", kind="verdict_incomplete",
            remedy="keep every condition with its status in the verdict", measured={"verdicts": len(own)},
        )
    ]  # fmt: skip
