"""Do all places that say what is in the loss say the same?"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._said import evidence, said, skipped


@answers("masks_consistent", explains=("weight_shares", "denominator_eq_mask_sum", "weight_mode_declared"))
def masks_consistent(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Batch, rows, columns and update agree on which rollouts train: none is in the loss of one and masked in another.

    Source: case D4: truncated rollouts zeroed in one mask and not in the other.
    """
    if not subject.batch_rows:
        return skipped("masks_consistent", "the batch names no rollout")
    trains = set(subject.trained)
    weighed = {weight.rollout_id for _, weight in subject.weights}
    told = {row.rollout_id for row in subject.rows}
    faults = [{"rollout": name, "batch": "trains", "update": "no weight"} for name in subject.trained if name not in weighed]
    faults += [{"rollout": name, "batch": "does not train", "update": "weight"} for name in sorted(weighed - trains)]
    faults += [{"rollout": name, "batch": "does not train", "rows": "has training rows"} for name in sorted(told - trains)]
    for row in subject.rows:
        held = None if row.weight_T is None else int(np.sum(row.weight_T != 0))
        if held is not None and held not in (0, row.told.trained):
            faults.append({"rollout": row.rollout_id, "row": str(row.told.index), "told": str(row.told.trained), "columns": str(held)})
        if row.told.trained > row.told.tokens or (row.told.trained == 0 and row.told.weight > 0):
            faults.append(
                {"rollout": row.rollout_id, "row": str(row.told.index), "trained": str(row.told.trained), "weight": str(row.told.weight)}
            )
    return said(
        "masks_consistent", faults, why="two masks disagree about what is in the loss", remedy="derive every mask from one",
        fault="masks_differ", events=evidence(subject, [fault["rollout"] for fault in faults]), trains=len(trains), weighed=len(weighed),
    )  # fmt: skip
