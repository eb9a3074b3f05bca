"""Each tool call finds the state that the one before it left, from the first state to the last. Pure."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._faults import Fault, found, skipped


@answers("state_chain")
def state_chain(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether the digests before and after tool calls, the recorded states and the state that was judged follow from each other.

    A gap is a change that no recorded call made.
    """
    places = [(event_id, "tool_call", body.index, body.state_before, body.state_after) for event_id, body in subject.tools]
    if subject.snapshots and subject.snapshots[0][1].step == 0:
        event_id, first = subject.snapshots[0]
        places.insert(0, (event_id, "snapshot", 0, first.state, first.state))
    if subject.ended is not None and len(subject.snapshots) > 1:
        event_id, last = subject.snapshots[-1]
        places.append((event_id, "snapshot", last.step, last.state, last.state))
        for verdict_id, verdict in subject.judged:
            if verdict.role == "bundle" and verdict.state_end is not None:
                places.append((verdict_id, "verdict", 0, verdict.state_end, verdict.state_end))
    if len(places) < 2:
        return skipped("state_chain", "fewer than two states of the rollout are recorded")
    faults = [
        Fault({"at": f"{kind} {index}", "left": left[4][:12], "found": before[:12]}, (left[0], event_id))
        for left, (event_id, kind, index, before, _) in pairwise(places)
        if left[4] != before
    ]
    return [
        found(
            "state_chain", faults, why="the state changed between two calls", kind="state_corrupted", measured={"states": len(places)},
            remedy="find what else writes to the world: another rollout, a stray process, a restored snapshot",
        )
    ]  # fmt: skip
