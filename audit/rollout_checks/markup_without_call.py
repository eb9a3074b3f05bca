"""A tool call that was sampled in its markup was read as one. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._answers import asked_calls, calls_in, message, sampled_text
from audit.rollout_checks._calls import completed
from audit.rollout_checks._faults import Fault, found, skipped
from training.rollout.tool_text import has_markup


@answers("markup_without_call", explains=("finish_reason_vs_outcome", "call_without_act"))
def markup_without_call(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether an answer spells a complete tool call in a common markup and neither the upstream nor the harness read one from it.

    Broken markup is the policy's own doing, and markup that was cut by a token limit is no call; both are counted and pass.

    Source: cases C4, C7.
    """
    acted = {body.model_call_id for _, body in subject.tools}
    faults, looked, broken = [], 0, 0
    for call, answered in completed(subject):
        if answered.finish_reason == "length":
            continue
        text = sampled_text(subject, call)
        text = str(message(subject, call).get("content") or "") if text is None else text
        looked += 1
        if call.call_id in acted or asked_calls(subject, call) or not has_markup(text):
            continue
        spelled = calls_in(_without_thinking(text))
        broken += not spelled
        if spelled:
            faults.append(Fault({"call": answered.index, "tool": spelled[0][0], "text": text}, (call.answered_id,)))
    if not looked:
        return skipped("markup_without_call", "no answer of the rollout is complete")
    return [
        found(
            "markup_without_call", faults, why="a sampled tool call was read by nobody", kind="call_dropped_by_parser",
            remedy="give the server the parser of the model's markup", measured={"answers": looked, "broken_markup": broken},
        )
    ]  # fmt: skip


def _without_thinking(text: str) -> str:
    return text.rpartition("</think>")[2]
