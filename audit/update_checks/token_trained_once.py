"""Is every sampled token trained once in the update?"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._said import evidence, said, skipped


@answers(
    "token_trained_once",
    explains=("mask_eq_sampled", "weight_mode_declared", "denominator_eq_mask_sum", "weight_shares", "masks_consistent", "adv_recompute",
              "group_by_rollout"),
)  # fmt: skip
def token_trained_once(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """No row of a rollout is in the batch twice, and rows that were cut otherwise hold no token of another row in their masks.

    Declared epochs are reuse of the whole batch and counted as such. Stages without rewards draw their rows again by declaration.

    Source: design rule that a sampled token is trained once an update epoch; cases B4 and G6.
    """
    if not subject.judged or not subject.rows:
        return skipped("token_trained_once", "no reward shapes this update" if not subject.judged else "the batch tells no training rows")
    count = Counter((row.rollout_id, row.told.index) for row in subject.rows)
    faults: list[dict[str, Any]] = [{"rollout": name, "row": index, "times": times} for (name, index), times in count.items() if times > 1]
    names = Counter(name for name, _ in {(row.rollout_id, row.event_id) for row in subject.rows})
    twice = {fault["rollout"] for fault in faults}
    rows = Counter(row.rollout_id for _, row in subject.batch_rows if row.trains)
    faults += [{"rollout": name, "batch_rows": times} for name, times in rows.items() if times > 1 and name not in twice]
    return said(
        "token_trained_once", faults, why="a slice of a rollout is trained more than once", remedy="give every sampled token one owner",
        fault="slice_double_counted", events=evidence(subject, [fault["rollout"] for fault in faults]), rows=len(subject.rows),
        rollouts=len(names),
    )  # fmt: skip
