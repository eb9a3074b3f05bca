"""Do advantage and weight lie on trained tokens alone, and on some of them where a rollout trains?"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._said import evidence, said, skipped


@answers("reward_on_masked_token", explains=("weight_shares",))
def reward_on_masked_token(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """No token outside of the sampled mask has an advantage, and no rollout's whole credit lies where nothing is trained.

    Source: cases B3 and D1: a reward put on a masked last token is lost, one put on an observation trains the policy to imitate it.
    """
    if not subject.judged:
        return skipped("reward_on_masked_token", "no reward shapes this update")
    faults: list[dict[str, Any]] = []
    compared = 0
    for row in subject.rows:
        if row.told.trained == 0 and row.told.credit > 0:
            faults.append({"rollout": row.rollout_id, "row": row.told.index, "credit_on_tokens_not_trained": row.told.credit})
        if row.adv_T is None or row.row is None or not row.fits:
            continue
        compared += 1
        outside = int(np.sum((row.adv_T != 0) & ~row.row.mask_T))
        if outside:
            faults.append({"rollout": row.rollout_id, "row": row.told.index, "tokens_outside_of_mask": outside})
        elif row.told.weight > 0 and not np.any(row.weight_T[row.row.mask_T]):  # type: ignore[index]
            faults.append({"rollout": row.rollout_id, "row": row.told.index, "weighted_trained_tokens": 0})
    if not subject.rows:
        return skipped("reward_on_masked_token", "the batch tells no training rows")
    return said(
        "reward_on_masked_token",
        faults,
        why="an advantage lies on tokens that are not trained",
        remedy="put advantages on sampled tokens alone",
        fault="inverted_mask",
        events=evidence(subject, [fault["rollout"] for fault in faults]),
        rows=len(subject.rows),
        rows_with_columns=compared,
    )
