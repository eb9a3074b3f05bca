"""Does every group hold the rollouts of exactly one task?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._estimates import told_by, truth
from audit.update_checks._said import evidence, said, skipped


@answers("group_one_task", explains=("adv_recompute", "phantom_group", "weight_shares"))
def group_one_task(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """All rollouts that the batch puts in a group attempted one bundle, and the advantages are not those of groups cut from the order.

    Source: case B10 with fixture F7.
    """
    if not subject.judged:
        return skipped("group_one_task", "no reward shapes this update")
    tasks: dict[str, dict[str, str]] = {}
    for rollout_id, (_, row) in subject.row_of.items():
        if row.group_id is not None and rollout_id in subject.known:
            tasks.setdefault(row.group_id, {})[rollout_id] = subject.known[rollout_id].bundle_id
    faults: list[dict[str, Any]] = [
        {"group": group, "tasks": len(set(mine.values())), "rollouts": list(mine)}
        for group, mine in tasks.items()
        if len(set(mine.values())) > 1
    ]
    voters = truth(subject)
    sizes = {sum(one.group == group for one in voters) for group in {one.group for one in voters}}
    if not faults and len(sizes) == 1 and (size := sizes.pop()) < len(voters):
        cut = [replace(one, group=str(n // size)) for n, one in enumerate(voters)]
        if told_by(subject, cut, policy):
            faults = [{"groups": "cut from the order of the batch", "size": size, "rollouts": [one.rollout_id for one in voters]}]
    if not tasks and not faults:
        return skipped("group_one_task", "the batch names no group of a rollout that is here")
    return said(
        "group_one_task",
        faults,
        why="a group holds rollouts of more than one task",
        remedy="group rollouts by the group they were dispatched in",
        fault="wrong_population",
        events=evidence(subject, [name for fault in faults for name in fault["rollouts"]]),
        groups=len(tasks),
    )
