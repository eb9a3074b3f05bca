"""A sample is in one row, and one answer of an upstream is one call. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._calls import completed
from audit.rollout_checks._faults import Fault, found, skipped


@answers("duplicate_segment")
def duplicate_segment(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether no call's sample stands in two rows, and no two calls have the same prompt, the same sample and the same origin.

    The origin is the upstream's id of the answer, or the seed that the request gave. Several samples of one prompt are legal, also when
    they are alike, as are a call and its retry.

    Source: case K3.
    """
    ids = {call.call_id: call for call in subject.calls}
    in_rows = Counter(call_id for row in subject.built.rows for call_id in row.call_ids)
    faults = [Fault({"call_id": call_id, "rows": count}, (ids[call_id].answered_id,)) for call_id, count in in_rows.items() if count > 1]
    seen: dict[tuple[Any, ...], Any] = {}
    looked = 0
    for call, answered in completed(subject):
        if answered.prompt_ids is None or answered.sampled_ids is None or (call.sent is not None and call.sent.retry_of is not None):
            continue
        looked += 1
        tokens = (answered.participant, answered.prompt_ids.commitment, answered.sampled_ids.commitment)
        for name, origin in (("answer", subject.answer(call).get("id")), ("seed", answered.sampling.get("seed"))):
            if origin is None:
                continue
            other = seen.setdefault((*tokens, name, origin), call)
            if other is not call:
                told = {"call": answered.index, "same_as": other.answered.index, "same": name}
                faults.append(Fault(told, (other.answered_id, call.answered_id)))
                break
    if not looked and not in_rows:
        return skipped("duplicate_segment", "no call of the rollout has tokens")
    return [
        found(
            "duplicate_segment", faults, why="one sample is there twice", kind="token_trained_twice", measured={"calls": looked},
            remedy="open a segment at a reset alone, and go on from it",
        )
    ]  # fmt: skip
