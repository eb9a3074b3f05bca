"""Ids name one thing: an attempt at a slot of a group of one task. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._calls import started_id
from audit.rollout_checks._faults import Fault, found

_ATTEMPT, _IDS = "attempt_id_unique", "id_uniqueness"


@answers(_ATTEMPT, _IDS, explains=("late_attempt_not_counted", "hidden_retry"))
def id_uniqueness(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether no other rollout is the same attempt at the same slot, and slot, task and tool calls are those that the ids say.

    The slot is within the group, the task is the group's, and a tool call id appears once in an answer.

    Source: cases A15, G5.
    """
    mine, me = subject.started, started_id(subject)
    twins = [one for one in subject.siblings if (one.slot, one.attempt) == (mine.slot, mine.attempt)]
    shared = [Fault({"slot": mine.slot, "attempt": mine.attempt, "other": one.rollout_id}, (me, one.started_id)) for one in twins]
    faults = []
    group = subject.dispatched
    group_id = None if subject.group is None else subject.group.event_id
    if group is not None and group.bundle_id != mine.bundle_id:
        faults.append(Fault({"task": mine.bundle_id[:12], "task_of_group": group.bundle_id[:12]}, (group_id, me)))
    if group is not None and mine.slot >= group.size:
        faults.append(Fault({"slot": mine.slot, "size": group.size}, (group_id, me)))
    indices = Counter((body.model_call_id, body.tool_call_id) for _, body in subject.tools if body.model_call_id is not None)
    for (call_id, name), count in indices.items():
        if count > 1:
            events = [event_id for event_id, body in subject.tools if (body.model_call_id, body.tool_call_id) == (call_id, name)]
            faults.append(Fault({"tool_call_id": name, "calls": count}, tuple(events)))
    return [
        found(
            _ATTEMPT, shared, why="two rollouts are the same attempt", kind="ids_not_unique",
            remedy="start each retry as an attempt of its own", measured={"siblings": len(subject.siblings)},
        ),
        found(
            _IDS, faults, why="an id names two things", kind="ids_not_unique", measured={"tool_calls": len(subject.tools)},
            remedy="derive ids from task, slot and attempt",
        ),
    ]  # fmt: skip
