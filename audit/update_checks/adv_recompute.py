"""Are the advantages those of the declared estimator over the rollouts that may vote?"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._estimates import apart, estimated, means, on_tokens, recorded, truth, without_estimate
from audit.update_checks._said import evidence, said, skipped
from audit.update_subject import TrainedRow

REMEDY = "recompute the batch over the rollouts that vote, each once, with its own reward"


@answers("adv_recompute", explains=("weight_shares",))
def adv_recompute(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Every trained rollout's advantage, and that of every token where it is recorded, against what the declared estimator gives.

    The baseline is over the rollouts that the batch lets vote and the ledger knows to be evidence, each once, with its own reward.

    Source: cases B1 and B2 with fixtures F1, F2, F3 and F6; survey AUD-08 and AUD-11.
    """
    why = without_estimate(subject)
    if why:
        return skipped("adv_recompute", why)
    voters, told = truth(subject), recorded(subject)
    found, tokens_apart = estimated(subject, voters), 0
    made = on_tokens(subject, voters)
    if made is not None and subject.view is not None:
        found = means(subject.view, made.adv_T)
        tokens_apart = _tokens_apart(subject, made.adv_T, policy["advantage_relative"])
    if found is None:
        return skipped("adv_recompute", "the estimator needs tokens or steps, and these are not here")
    wrong = apart(told, found, policy["advantage_relative"])
    faults = [{"rollout": name, "advantage": told[name], "needed": found.get(name)} for name in wrong]
    if tokens_apart and not faults:
        faults = [{"tokens": tokens_apart, "advantage": "as recorded", "needed": "that of the estimator"}]
    changed = "; the estimator's source has changed since" if "advantages" in subject.declared.changed else ""
    return said(
        "adv_recompute", faults, why=f"advantages are not those of the declared estimator{changed}", remedy=REMEDY, fault="wrong_advantage",
        events=evidence(subject, wrong or told), rollouts=len(told), apart=len(wrong), tokens_apart=tokens_apart,
        voters=sum(one.votes for one in voters),
    )  # fmt: skip


def _tokens_apart(subject: UpdateSubject, adv_T: np.ndarray[Any, Any], relative: float) -> int:
    view = subject.view
    assert view is not None
    edges = np.searchsorted(view.row_T, np.arange(len(view.rollout_Q) + 1))
    place = {name: r for r, name in enumerate(view.rollout_id_R)}
    numbers: dict[int, list[int]] = {}
    for q, r in enumerate(view.rollout_Q):
        numbers.setdefault(int(r), []).append(q)
    rows: dict[str, list[TrainedRow]] = {}
    for row in subject.rows:
        rows.setdefault(row.rollout_id, []).append(row)
    count = 0
    for name, mine in rows.items():
        # A rollout's rows that train something stand in the view in the order of their numbers.
        for q, row in zip(numbers.get(place.get(name, -1), ()), sorted(mine, key=lambda one: one.told.index), strict=False):
            if row.adv_T is None or row.row is None or not row.fits:
                continue
            own, needed = row.adv_T[row.row.mask_T], adv_T[edges[q] : edges[q + 1]][row.row.mask_T]
            count += int(np.sum(~(np.abs(own - needed) <= 1e-9 + relative * np.maximum(np.abs(own), np.abs(needed)))))
    return count
