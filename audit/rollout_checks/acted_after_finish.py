"""Nothing is asked or done after the end of a rollout. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._faults import Fault, found, skipped

_ACTS = ("ToolCalled", "ModelCallDispatched")


@answers("acted_after_finish")
def acted_after_finish(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether no tool call and no model call stands behind the end in the rollout's stream.

    An answer that arrives late to a call made before the end is no act.

    Source: issue of actions after the finish; design section 9, RolloutEnded.
    """
    if subject.ended is None:
        return skipped("acted_after_finish", "the rollout has not ended")
    end_id = subject.ended[0]
    at = next(event.version for event in subject.own if event.event_id == end_id)
    faults = [Fault({"event": event.kind}, (end_id, event.event_id)) for event in subject.own if event.version > at and event.kind in _ACTS]
    return [
        found(
            "acted_after_finish", faults, why="the rollout acted after its end", kind="acted_after_finish",
            remedy="stop the agent before its end is written", measured={"events": len(subject.own)},
        )
    ]  # fmt: skip
