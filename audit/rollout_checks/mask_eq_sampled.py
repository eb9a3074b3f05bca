"""The mask of the built rows covers exactly the sampled tokens of trainable participants. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._calls import trainable
from audit.rollout_checks._faults import Fault, found, skipped


@answers("mask_eq_sampled")
def mask_eq_sampled(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether each row's mask is True on the sampled tokens of trainable participants, False elsewhere, as counted from the calls again.

    The sampled ids must stand where the mask says that they were sampled, too.

    Source: cases D1, D2.
    """
    if not subject.built.rows:
        return skipped("mask_eq_sampled", "the rollout has no rows")
    calls, may = {call.call_id: call for call in subject.calls}, trainable(subject)
    faults, trained, sampled = [], 0, 0
    for row in subject.built.rows:
        wanted, moved = np.zeros(len(row.ids_T), dtype=np.bool_), 0
        for call_id in row.call_ids:
            held = calls[call_id].tokens
            if held is None or held.prompt is None or held.sampled is None:
                continue
            span = slice(len(held.prompt), len(held.prompt) + len(held.sampled))
            wanted[span] = may.get(row.participant, False)
            moved += not np.array_equal(row.ids_T[span], held.sampled)
        trained, sampled = trained + int(row.mask_T.sum()), sampled + int(wanted.sum())
        if len(row.mask_T) != len(wanted):
            continue
        wrong = np.flatnonzero(row.mask_T != wanted)
        if len(wrong) or moved:
            seen = {
                "row": row.index, "first_wrong_index": int(wrong[0]) if len(wrong) else None, "tokens_wrong": len(wrong),
                "masked_not_sampled": int((row.mask_T & ~wanted).sum()), "sampled_not_masked": int((wanted & ~row.mask_T).sum()),
                "samples_elsewhere": moved,
            }  # fmt: skip
            faults.append(Fault(seen, tuple(calls[call_id].answered_id for call_id in row.call_ids)))
    return [
        found(
            "mask_eq_sampled", faults, why="the mask is not the sampled tokens", kind="inverted_mask",
            remedy="mask exactly the sampled tokens of trainable participants", measured={"trained": trained, "sampled": sampled},
        )
    ]  # fmt: skip
