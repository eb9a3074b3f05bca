"""Are all recorded numbers finite, and did a step with advantages move anything?"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._said import evidence, parts_of, said, skipped


@answers("nan_adv", explains=("adv_recompute", "weight_shares", "weight_mode_declared", "denominator_eq_mask_sum"))
def nan_adv(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Advantages and weights of all tokens are finite, and an update whose advantages are not all 0 has a gradient.

    A NaN that is turned into 0 on the way poisons a batch silently: loss 0, gradient 0, and the run goes on.

    Source: case B9.
    """
    columns = [row for row in subject.rows if row.adv_T is not None and row.weight_T is not None]
    told = [row.advantage for _, row in subject.batch_rows if row.trains and row.advantage is not None]
    if not columns and not told:
        return skipped("nan_adv", "the batch tells no advantage")
    faults: list[dict[str, Any]] = []
    for row in columns:
        assert row.adv_T is not None
        assert row.weight_T is not None
        wrong = int(np.sum(~np.isfinite(row.adv_T)) + np.sum(~np.isfinite(row.weight_T)))
        if wrong:
            faults.append({"rollout": row.rollout_id, "row": row.told.index, "not_finite": wrong})
    norm, loss = subject.counters.get("grad_norm"), subject.counters.get("loss")
    if any(told) and norm == 0 and loss == 0:
        faults.append({"rollout": subject.trained[0], "loss": loss, "grad_norm": norm, "advantages_not_0": sum(map(bool, told))})
    return said(
        "nan_adv",
        faults,
        why="advantages or weights are not finite, or the step was nothing",
        remedy="leave unscorable rollouts out of baselines and loss",
        fault="wrong_advantage",
        events=evidence(subject, [fault["rollout"] for fault in faults]) if faults else parts_of(subject),
        rows_with_columns=len(columns),
        advantages=len(told),
    )
