"""Is each dispatched rollout consumed exactly once or dropped with a reason that holds?"""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._said import evidence, parts_of, said, skipped
from audit.update_subject import NO_EVIDENCE


@answers("dispatch_consume_ledger", explains=("length_bias", "phantom_group"))
def dispatch_consume_ledger(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Every slot of every group that was dispatched since the run's last round is in one batch of the run, or left out with a reason.

    Slots that nothing filled, rollouts in no batch and rollouts in two are named, and so are reasons that the ledger contradicts.

    Source: cases G1, G3 and G6.
    """
    if not subject.judged or not subject.slots:
        return skipped(
            "dispatch_consume_ledger",
            "no reward shapes this update" if not subject.judged else "no group of this round was dispatched here",
        )
    mine = set(subject.row_of) | set(subject.excluded)
    faults: list[dict[str, Any]] = []
    events: list[str] = []
    expected: set[str] = set()
    for slots in subject.slots:
        for slot, rollout_id in enumerate(slots.rollout_ids):
            if rollout_id is None:
                faults.append({"group": slots.group.group_id, "slot": slot, "found": "no counted attempt"})
                events.append(slots.event_id)
                continue
            expected.add(rollout_id)
            if rollout_id not in mine and not subject.consumed.get(rollout_id):
                faults.append({"rollout": rollout_id, "group": slots.group.group_id, "found": "in no batch of the run"})
                events += [slots.event_id, *subject.known[rollout_id].event_ids[:1]]
    for name in sorted(mine):
        if subject.consumed.get(name):
            faults.append({"rollout": name, "found": f"also in update {subject.consumed[name][0]}"})
            events += evidence(subject, [name])[:2]
        elif name not in expected and name in subject.known:
            faults.append({"rollout": name, "found": "dispatched for no group of this round"})
            events += subject.known[name].event_ids[:1]
    for name, (reason, event_id) in subject.excluded.items():
        if name in subject.known and reason in NO_EVIDENCE and subject.known[name].outcome != reason:
            faults.append({"rollout": name, "left_out_as": reason, "outcome": subject.known[name].outcome})
            events += [event_id, *subject.known[name].event_ids]
    return said(
        "dispatch_consume_ledger",
        faults,
        why="what was dispatched is not what was consumed",
        remedy="checkpoint what was dispatched with what is trained",
        fault="dispatched_not_consumed",
        events=[*events, *parts_of(subject)] if faults else (),
        expected=len(expected),
        groups=len(subject.slots),
        left_out=len(subject.excluded),
    )
