"""Are the shares of the gradient what weights and advantages give, and do they add up to 1?"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._said import by_rollout, close, evidence, parts_of, said, skipped
from audit.update_subject import TrainedRow


@answers("weight_shares")
def weight_shares(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Each rollout's share is its part of the sum of |weight x advantage|; all shares together are 1.

    From the columns where they are recorded, else from the credit of the rows, else from weight and advantage of the rollout. What the
    columns give must be what the rows tell.

    Source: survey AUD-12: weights a rollout are shown.
    """
    told = by_rollout((weight.rollout_id, weight.share) for _, weight in subject.weights if weight.share is not None)
    if not told:
        return skipped("weight_shares", "the update tells no shares")
    relative = policy["weight_relative"]
    credit = _credit(subject)
    total = sum(credit.values())
    faults: list[dict[str, Any]] = []
    if not close(sum(told.values()), 1.0, relative):
        faults.append({"rollout": "all", "shares_sum": sum(told.values()), "needed": 1.0})
    for name, share in told.items():
        if total > 0 and name in credit and not close(share, credit[name] / total, relative):
            faults.append({"rollout": name, "share": share, "needed": credit[name] / total})
    for row in subject.rows:
        own = _of_columns(row)
        if own is not None and not close(own, row.told.credit, relative):
            faults.append({"rollout": row.rollout_id, "row": row.told.index, "credit": row.told.credit, "needed": own})
    names = [fault["rollout"] for fault in faults if fault["rollout"] != "all"]
    return said(
        "weight_shares", faults, why="shares of the gradient are not what weights and advantages give", remedy="recompute the shares",
        fault="wrong_weight", events=evidence(subject, names) if names else parts_of(subject), shares=len(told),
        largest=max(told.values()),
    )  # fmt: skip


def _credit(subject: UpdateSubject) -> Mapping[str, float]:
    if subject.rows:
        return by_rollout((row.rollout_id, row.told.credit) for row in subject.rows)
    return by_rollout(
        (weight.rollout_id, weight.weight * (1.0 if weight.advantage is None else abs(weight.advantage))) for _, weight in subject.weights
    )


def _of_columns(row: TrainedRow) -> float | None:
    if row.adv_T is None or row.weight_T is None:
        return None
    return float(np.sum(np.abs(row.adv_T * row.weight_T)))
