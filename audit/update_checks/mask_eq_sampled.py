"""Is what is trained exactly what was sampled?"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._said import by_rollout, evidence, said, skipped


@answers(
    "mask_eq_sampled",
    explains=("reward_on_masked_token", "denominator_eq_mask_sum", "weight_mode_declared", "masks_consistent", "weight_shares",
              "adv_recompute", "engine_against_trainer_logprobs", "mismatch_kl_step", "kept_mass_ratio", "nan_adv"),
)  # fmt: skip
def mask_eq_sampled(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """In every training row as many tokens are trained as its calls sampled, and where columns are recorded they are the very same tokens.

    A row is compared with the one of its number that the captured tokens give. Rows that were cut otherwise are compared by rollout.

    Source: cases D1 and D2; survey AUD-50: tool-output tokens with mask 1.
    """
    known = [row for row in subject.rows if row.row is not None]
    if not known:
        return skipped("mask_eq_sampled", subject.unread or "no captured tokens of a row that the batch tells")
    mine = {row.rollout_id for row in known}
    cut = {row.rollout_id for row in subject.rows if row.rollout_id in mine and not row.fits}
    faults: list[dict[str, Any]] = []
    for row in known:
        assert row.row is not None
        sampled = int(row.row.mask_T.sum())
        if row.rollout_id in cut:
            continue
        outside = missing = 0
        if row.weight_T is not None and np.any(row.weight_T):
            outside, missing = int(np.sum((row.weight_T != 0) & ~row.row.mask_T)), int(np.sum((row.weight_T == 0) & row.row.mask_T))
        if row.told.trained != sampled or outside or missing:
            faults.append({
                "rollout": row.rollout_id, "row": row.told.index, "trained": row.told.trained, "sampled": sampled,
                "outside": outside, "missing": missing,
            })  # fmt: skip
    trained = by_rollout((row.rollout_id, float(row.told.trained)) for row in subject.rows if row.rollout_id in cut)
    for name in sorted(cut):
        sampled = _sampled(subject, name)
        if trained[name] != sampled:
            faults.append({"rollout": name, "row": "cut otherwise", "trained": int(trained[name]), "sampled": sampled})
    return said(
        "mask_eq_sampled", faults, why="the trained tokens are not the sampled ones", remedy="train exactly the sampled tokens",
        fault="inverted_mask", events=evidence(subject, [fault["rollout"] for fault in faults]), rows=len(known), cut_otherwise=len(cut),
        with_columns=sum(row.weight_T is not None for row in known), unread=subject.unread,
    )  # fmt: skip


def _sampled(subject: UpdateSubject, rollout_id: str) -> int:
    """Sampled tokens that may be trained, of the rebuilt rows of a rollout."""
    if subject.view is not None and rollout_id in subject.view.rollout_id_R:
        r = subject.view.rollout_id_R.index(rollout_id)
        return int(np.sum(subject.view.mask_T & (subject.view.rollout_T == r)))
    rows = {row.row.index: row.row for row in subject.rows if row.rollout_id == rollout_id and row.row is not None}
    return sum(int(row.mask_T.sum()) for row in rows.values())
