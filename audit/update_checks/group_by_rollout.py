"""Does each rollout count once in its baseline, however many rows it has?"""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._estimates import told_by, truth
from audit.update_checks._said import evidence, said, skipped


@answers("group_by_rollout", explains=("adv_recompute", "weight_shares", "weight_mode_declared", "denominator_eq_mask_sum"))
def group_by_rollout(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """No rollout votes twice: not by two rows of the batch, and not by its training rows, which shows in the advantages.

    Rows of one rollout with different rewards are an error whoever votes.

    Source: cases B4 and B5 with fixture F3; survey AUD-11.
    """
    if not subject.judged:
        return skipped("group_by_rollout", "no reward shapes this update")
    rows: dict[str, list[Any]] = {}
    for _, row in subject.batch_rows:
        rows.setdefault(row.rollout_id, []).append(row)
    twice = {name: mine for name, mine in rows.items() if sum(row.votes for row in mine) > 1}
    unequal = {name: mine for name, mine in rows.items() if len({row.reward for row in mine}) > 1}
    faults: list[dict[str, Any]] = [
        {"rollout": name, "rewards": [row.reward for row in mine]} for name, mine in {**twice, **unequal}.items()
    ]
    several = [name for name, (_, row) in subject.row_of.items() if len(row.rows) > 1]
    by_rows = [one for one in truth(subject) for _ in range(max(1, len(subject.row_of[one.rollout_id][1].rows)))]
    if not faults and several and told_by(subject, by_rows, policy):
        faults = [{"rollout": name, "votes": len(subject.row_of[name][1].rows)} for name in several]
    return said(
        "group_by_rollout", faults, why="a rollout votes more than once in its baseline",
        remedy="count a rollout once and give its advantage to all of its rows", fault="slice_double_counted",
        events=evidence(subject, [fault["rollout"] for fault in faults]), rollouts=len(rows), with_several_rows=len(several),
    )  # fmt: skip
