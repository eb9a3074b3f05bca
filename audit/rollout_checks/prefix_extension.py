"""Each prompt goes on from what was sampled before it, or says why it does not. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._calls import with_tokens
from audit.rollout_checks._faults import Fault, found, skipped
from training.rows import Row

_DRIFT = ("template", "retokenise", "parser")
_AROUND = 8


@answers("prefix_extension")
def prefix_extension(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether every row that a prompt opened has a legal reason: a conversation, a participant, a branch or a rewriting of its own.

    A prompt that holds the same messages in other tokens (a separator that is gone, a sample tokenised again, a text that a parser
    changed) is drift, unless the harness recorded that it rewrote the history there. An answer of nothing but its end of turn, before
    which the template puts a blank, lost nothing that was sampled and is counted as `empty_answers`.

    Source: cases C1, C2; formats.md 0.7.
    """
    if not any(True for _ in with_tokens(subject)):
        return skipped("prefix_extension", "no call of the rollout has token ids")
    reasons: dict[str, int] = {}
    for row in subject.built.rows:
        reasons[row.open_reason] = reasons.get(row.open_reason, 0) + 1
    moved = [row for row in subject.built.rows if row.open_reason in _DRIFT and not _said(subject, row)]
    drifted = [row for row in moved if not _empty_answer(subject, row)]
    return [
        found(
            "prefix_extension", [_fault(subject, row) for row in drifted], why="a prompt does not go on from the sampled tokens",
            remedy="append the sampled ids to the next prompt, and never render again what was sampled", kind="template_drift",
            measured={"rows": len(subject.built.rows), "opened_by": reasons, "empty_answers": len(moved) - len(drifted)},
        )
    ]  # fmt: skip


def _said(subject: RolloutSubject, row: Row) -> bool:
    """Whether the harness recorded a rewriting between the rows, or right before the row's first call."""
    head = next(call for call in subject.calls if call.call_id == row.call_ids[0])
    index = head.answered.index if head.answered is not None else -1
    return any(body.before_call is None or body.before_call == index for _, body in subject.rewrites)


def _empty_answer(subject: RolloutSubject, row: Row) -> bool:
    """Whether the sample in which the prompt diverges is an end of turn alone, and the prompt has it one token later."""
    left, at = subject.built.rows[row.left_row or 0], row.diverges_at or 0
    if at >= len(left.ids_T) or at + 1 >= len(row.ids_T) or left.step_T[at] < 0:
        return False
    return int((left.step_T == left.step_T[at]).sum()) == 1 and int(row.ids_T[at + 1]) == int(left.ids_T[at])


def _fault(subject: RolloutSubject, row: Row) -> Fault:
    left = subject.built.rows[row.left_row or 0]
    at = row.diverges_at or 0
    ids = {call.call_id: call for call in subject.calls}
    before, after = ids[left.call_ids[-1]], ids[row.call_ids[0]]
    seen: dict[str, Any] = {
        "row": row.index, "first_divergent_index": at, "reason": row.open_reason, "left_row": row.left_row,
        "row_ids": left.ids_T[at : at + _AROUND].tolist(), "prompt_ids": row.ids_T[at : at + _AROUND].tolist(),
    }  # fmt: skip
    version = next((span.model_version for span in after.answered.version_spans), "") if after.answered is not None else ""
    if subject.decode is not None:
        for name, tokens in (("row_text", left.ids_T), ("prompt_text", row.ids_T)):
            seen[name] = subject.decode(version, tokens[at : at + _AROUND].tolist())
    return Fault(seen, (before.answered_id, after.sent_id, after.answered_id))
