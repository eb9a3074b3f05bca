"""The captured tokens are as many as the upstream counted, and are those that the event committed to. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._calls import completed
from audit.rollout_checks._faults import Fault, found, skipped

_ID = "capture.count_eq_usage"


@answers(_ID, explains=("prefix_extension", "version_spans_cover_tokens", "len_ids_eq_len_logprobs", "args_roundtrip"))
def capture_count_eq_usage(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether prompt and sampled ids of each completed call are as many as its `usage` says, and stored as they were committed to.

    Source: case C4.
    """
    faults, looked = [], 0
    for call, answered in completed(subject):
        pairs = [("sampled_ids", answered.sampled_ids, "completion_tokens"), ("prompt_ids", answered.prompt_ids, "prompt_tokens")]
        for name, array, counter in pairs:
            stated = answered.usage.get(counter)
            if array is None or stated is None:
                continue
            looked += 1
            if array.count != stated:
                faults.append(Fault({"call": answered.index, name: array.count, counter: stated}, (call.answered_id,)))
        if call.token_fault is not None:
            looked += 1
            faults.append(Fault({"call": answered.index, "stored": call.token_fault}, (call.answered_id,)))
    if not looked:
        return skipped(_ID, "no call has both token ids and a usage")
    return [
        found(
            _ID, faults, why="captured tokens and usage differ", kind="capture_gap", measured={"counts": looked},
            remedy="take ids from the engine's answer before any parser has seen it",
        )
    ]  # fmt: skip
