"""Ids, log-probabilities and masks of a sample are equally many. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._calls import completed
from audit.rollout_checks._faults import Fault, found, skipped

_IDS, _MASK = "len_ids_eq_len_logprobs", "len_mask_eq_len_ids"


@answers(_IDS, _MASK, explains=("logprob_nan", "logprob_exact_zero_run", "mask_eq_sampled"))
def lengths(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether each sample has one log-probability a token, as stated and as stored, and each row one mask entry a token.

    Source: cases C9, C12.
    """
    return [*_logprobs(subject), *_masks(subject)]


def _logprobs(subject: RolloutSubject) -> Sequence[CheckResult]:
    faults, looked = [], 0
    for call, answered in completed(subject):
        pairs = []
        if answered.sampled_ids is not None and answered.logprobs is not None:
            pairs.append(("stated", answered.sampled_ids.count, answered.logprobs.count))
        if call.tokens is not None and call.tokens.sampled is not None and call.tokens.logprobs is not None:
            pairs.append(("stored", len(call.tokens.sampled), len(call.tokens.logprobs)))
        looked += bool(pairs)
        faults += [
            Fault({"call": answered.index, "ids": ids, "logprobs": logprobs, "as": how}, (call.answered_id,))
            for how, ids, logprobs in pairs
            if ids != logprobs
        ]
    if not looked:
        return skipped(_IDS, "no call of the rollout has ids and log-probabilities")
    return [
        found(
            _IDS, faults, why="a sample has not one log-probability a token", kind="logprobs_filled", measured={"calls": looked},
            remedy="refuse such an answer; never fill up or cut off a list of log-probabilities",
        )
    ]  # fmt: skip


def _masks(subject: RolloutSubject) -> Sequence[CheckResult]:
    if not subject.built.rows:
        return skipped(_MASK, "the rollout has no rows")
    ids = {call.call_id: call.answered_id for call in subject.calls}
    faults = []
    for row in subject.built.rows:
        counts = {"ids": len(row.ids_T), "mask": len(row.mask_T), "logprobs": len(row.logprob_T), "steps": len(row.step_T)}
        if len(set(counts.values())) > 1:
            faults.append(Fault({"row": row.index, **counts}, tuple(ids[call_id] for call_id in row.call_ids)))
    return [
        found(
            _MASK, faults, why="a row has not one mask entry a token", kind="tokens_changed",
            remedy="build masks from the sampled ids, never from text that was tokenised again", measured={"rows": len(subject.built.rows)},
        )
    ]  # fmt: skip
