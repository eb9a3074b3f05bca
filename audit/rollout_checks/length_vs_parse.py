"""An answer that its token limit cut is not taken for one in a wrong format. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._calls import completed
from audit.rollout_checks._faults import Fault, found, skipped

_FORMAT = ("malformed_arguments", "parse_error")


@answers("length_vs_parse", explains=("finish_reason_vs_outcome",))
def length_vs_parse(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether no tool call of an answer with finish reason `length` was refused as malformed.

    A malformed call of an answer that ended by itself is the policy's own doing.

    Source: case A20.
    """
    cut = {call.call_id: call.answered_id for call, answered in completed(subject) if answered.finish_reason == "length"}
    if not cut:
        return skipped("length_vs_parse", "no answer was cut by its token limit")
    faults = [
        Fault({"tool_call": body.index, "error_class": body.error_class}, (cut[body.model_call_id], event_id))
        for event_id, body in subject.tools
        if body.model_call_id in cut and body.error_class in _FORMAT
    ]
    return [
        found(
            "length_vs_parse", faults, why="an answer that was cut was taken for a malformed call", kind="length_stop_as_failure",
            remedy="look at the finish reason before parsing", measured={"cut_answers": len(cut)},
        )
    ]  # fmt: skip
