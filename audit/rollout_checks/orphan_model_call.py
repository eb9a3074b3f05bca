"""Every model call of a rollout belongs to it: asked, answered, by a known participant, and what was done names it. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._faults import Fault, found, skipped


@answers("orphan_model_call")
def orphan_model_call(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether calls have their intent and, in a rollout that finished, their answer; whether tool calls name calls that are there.

    In a rollout that broke or was cancelled a call may stay without an answer.

    Source: case H4.
    """
    if not subject.calls and not subject.tools:
        return skipped("orphan_model_call", "the rollout has no call")
    known = {member.name for member in subject.started.participants}
    there = {call.call_id for call in subject.calls}
    finished = subject.ended is not None and subject.ended[1].ended_by == "finished"
    faults = []
    for call in subject.calls:
        body = call.sent or call.answered
        assert body is not None
        if call.sent is None:
            faults.append(Fault({"call": body.index, "missing": "intent"}, call.event_ids))
        if call.answered is None and finished:
            faults.append(Fault({"call": body.index, "missing": "answer"}, call.event_ids))
        if body.participant not in known:
            faults.append(Fault({"call": body.index, "unknown_participant": body.participant}, call.event_ids))
    for event_id, tool in subject.tools:
        if tool.model_call_id is not None and tool.model_call_id not in there:
            faults.append(Fault({"tool_call": tool.index, "names": tool.model_call_id}, (event_id,)))
    return [
        found(
            "orphan_model_call", faults, why="a call has lost its rollout, or the rollout a call", kind="capture_gap",
            remedy="put the rollout's id into the path of the URL that the agent calls", measured={"calls": len(subject.calls)},
        )
    ]  # fmt: skip
