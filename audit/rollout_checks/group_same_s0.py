"""Rollouts of a group begin in the same state. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._faults import Fault, found, skipped


@answers("group_same_s0", explains=("state_chain",))
def group_same_s0(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether the digest of the first state is that of most of the group; of a tie neither half is right.

    Only rollouts that began at the same place are compared: a branch begins where it left its parent.

    Source: case M1.
    """
    mine = next(((event_id, body.state) for event_id, body in subject.snapshots if body.step == 0), None)
    origin = (subject.started.parent_rollout_id, subject.started.fork_step)
    others = [one for one in subject.siblings if one.state is not None and one.origin == origin]
    if mine is None or not others:
        return skipped("group_same_s0", "the first state of the rollout, or of another of its group, is not recorded")
    event_id, state = mine
    alike = 1 + sum(one.state == state for one in others)
    different = [one for one in others if one.state != state]
    faults = []
    if different and 2 * alike <= 1 + len(others):
        seen = {"state": state[:12], "alike": alike, "group": 1 + len(others), "other_state": str(different[0].state)[:12]}
        faults.append(Fault(seen, (event_id, *(one.state_id for one in different))))
    return [
        found(
            "group_same_s0", faults, why="a rollout began in another state than its group", kind="wrong_reset",
            remedy="reset from the task's own state and seed, with a generator of each session's own",
            measured={"alike": alike, "group": 1 + len(others)},
        )
    ]  # fmt: skip
