"""Is every group of the batch one that was dispatched, with the rollouts that were started in it?"""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._said import evidence, said, skipped


@answers("phantom_group", explains=("adv_recompute",))
def phantom_group(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Each rollout of the batch is in the ledger, in the group that the batch names, and that group was dispatched for the run.

    Padding, dummies and rollouts of another run would shape a baseline that nobody dispatched.

    Source: cases B10 and G5.
    """
    if not subject.judged:
        return skipped("phantom_group", "no reward shapes this update")
    run_id = subject.applied[0][1].run_id
    faults = [{"rollout": name, "found": "no such rollout here"} for name in subject.missing]
    named = 0
    for rollout_id, (_, row) in subject.row_of.items():
        known = subject.known.get(rollout_id)
        if known is None:
            continue
        named += row.group_id is not None
        if row.group_id is not None and row.group_id != known.group_id:
            faults.append({"rollout": rollout_id, "found": f"started in group {known.group_id}", "batch_says": row.group_id})
        elif known.policy is None:
            faults.append({"rollout": rollout_id, "found": f"group {known.group_id} was never dispatched"})
        elif known.run_id != run_id:
            faults.append({"rollout": rollout_id, "found": f"dispatched for run {known.run_id}"})
    return said(
        "phantom_group", faults, why="a group of the batch is not one that was dispatched for the run",
        remedy="train on the rollouts of dispatched groups alone", fault="wrong_population",
        events=evidence(subject, [fault["rollout"] for fault in faults]), rollouts=len(subject.row_of), with_group=named,
    )  # fmt: skip
