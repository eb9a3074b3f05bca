"""How the last answer ended agrees with how the rollout is said to have ended. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._answers import asked_calls
from audit.rollout_checks._calls import completed
from audit.rollout_checks._faults import Fault, found, skipped


@answers("finish_reason_vs_outcome")
def finish_reason_vs_outcome(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a rollout that finished did not end with an answer cut by its token limit, and one ended by that limit did.

    An answer that ends with `tool_calls` has one.

    Source: case A20.
    """
    answered = [(call, body) for call, body in completed(subject) if body.finish_reason is not None]
    if subject.ended is None or not answered:
        return skipped("finish_reason_vs_outcome", "the rollout has not ended, or no answer says how it ended")
    (end_id, end), (last, body) = subject.ended, answered[-1]
    faults, kind = [], "length_stop_as_failure"
    seen = {"ended_by": end.ended_by, "finish_reason": body.finish_reason}
    cut = [call.answered_id for call, answer in answered if answer.finish_reason == "length"]
    if end.ended_by == "finished" and body.finish_reason == "length":
        faults.append(Fault(seen, (last.answered_id, end_id)))
    if end.ended_by == "token_limit" and not cut:
        faults.append(Fault(seen, (last.answered_id, end_id)))
    for call, answer in answered:
        if answer.finish_reason == "tool_calls" and answer.response is not None and not asked_calls(subject, call):
            kind = "call_dropped_by_parser"
            faults.append(Fault({"call": answer.index, "finish_reason": "tool_calls", "tool_calls": 0}, (call.answered_id,)))
    return [
        found(
            "finish_reason_vs_outcome", faults, why="the end of the rollout and the end of its answers disagree", kind=kind,
            remedy="end a rollout whose answer was cut as token_limit, and only that one", measured={**seen, "answers": len(answered)},
        )
    ]  # fmt: skip
