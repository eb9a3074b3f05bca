"""A conversation only grows; where part of it is gone, the record says why and the segments are linked. Pure."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._faults import Fault, found, skipped
from audit.rollout_subject import SeenCall

Messages = Sequence[Mapping[str, Any]]
_THINKING = re.compile(r"<think>.*?</think>\s*", re.DOTALL)
_CUT = ("truncation", "compaction")
_LINKED = (*_CUT, "template", "retokenise", "parser", "history_rewritten")


@answers("segment_graph_complete", explains=("prefix_extension",))
def segment_graph_complete(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether each request holds the messages and the answer of an earlier one of its conversation, and each row that lacks tokens is
    linked to the row that it left.

    Messages may be gone where the harness recorded a rewriting before that call, or a summary was asked for since; thinking may be gone
    from earlier answers. Another first user message is another conversation.

    Source: cases K1, C2.
    """
    faults, looked = list(_cut(subject)), sum(call.sent is not None for call in subject.calls)
    sent = {call.call_id: call for call in subject.calls}
    heads = {fault.event_ids[-1] for fault in faults}
    for row in subject.built.rows:
        head = sent[row.call_ids[0]]
        if row.open_reason in _LINKED and row.left_row is None:
            faults.append(Fault({"row": row.index, "reason": row.open_reason, "linked": False}, (head.sent_id, head.answered_id)))
        elif row.open_reason in _CUT and not _explained(subject, head) and head.sent_id not in heads:
            seen = {"row": row.index, "reason": row.open_reason, "first_divergent_index": row.diverges_at}
            faults.append(Fault(seen, (head.answered_id, head.sent_id)))
    if not looked:
        return skipped("segment_graph_complete", "the rollout has no model call")
    return [
        found(
            "segment_graph_complete", faults, why="part of a conversation is gone and nothing says why", kind="history_cut",
            remedy="record each rewriting of a history, and train with the harness that rewrites as well",
            measured={"calls": looked, "rewritings": len(subject.rewrites), "rows": len(subject.built.rows)},
        )
    ]  # fmt: skip


def _cut(subject: RolloutSubject) -> Iterator[Fault]:
    before: dict[str, list[tuple[SeenCall, Messages]]] = {}
    grew = _grew(subject)
    for call in subject.calls:
        if call.sent is None or call.sent.role == "summary" or call.sent.participant in grew:
            continue
        now = _messages(subject, call)
        mine = before.setdefault(call.sent.participant, [])
        same = [(other, held) for other, held in mine if _opening(held) == _opening(now)]
        if same and not any(_goes_on(now, held, other) for other, held in reversed(same)) and not _explained(subject, call):
            other, held = same[-1]
            at = next((n for n, (old, new) in enumerate(zip(held, now, strict=False)) if not _alike(old, new)), min(len(held), len(now)))
            seen = {"call": call.sent.index, "first_divergent_message": at, "messages": len(now), "messages_before": len(held)}
            yield Fault(seen, (other.sent_id, call.sent_id))
        mine.append((call, now))


def _grew(subject: RolloutSubject) -> set[str]:
    """Participants all of whose samples are in one row: then each prompt holds the tokens of the one before, and so its messages."""
    rows = Counter(row.participant for row in subject.built.rows)
    held = Counter(row.participant for row in subject.built.rows for _ in row.call_ids)
    asked = Counter(call.sent.participant for call in subject.calls if call.sent is not None)
    return {name for name, count in asked.items() if rows[name] == 1 and held[name] == count}


def _explained(subject: RolloutSubject, call: SeenCall) -> bool:
    index = call.sent.index if call.sent is not None else call.answered.index if call.answered is not None else -1
    summaries = [other.sent.index for other in subject.calls if other.sent is not None and other.sent.role == "summary"]
    rewritten = any(body.before_call is None or body.before_call == index for _, body in subject.rewrites)
    return rewritten or any(other < index for other in summaries)


def _messages(subject: RolloutSubject, call: SeenCall) -> Messages:
    held = subject.request(call).get("messages")
    return [item for item in held if isinstance(item, Mapping)] if isinstance(held, Sequence) and not isinstance(held, str) else []


def _opening(messages: Messages) -> Any:
    return next((item.get("content") for item in messages if item.get("role") == "user"), None)


def _goes_on(now: Messages, before: Messages, call: SeenCall) -> bool:
    """Whether a request has the messages of an earlier one, and behind them, if anything, an answer where that one was answered."""
    if len(now) < len(before) or not (now[: len(before)] == before or all(map(_alike, before, now))):
        return False
    answered = call.answered is not None and call.answered.status == "completed"
    return len(now) == len(before) or not answered or now[len(before)].get("role") == "assistant"


def _alike(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two messages say the same, thinking apart."""
    if old.get("role") != new.get("role") or old.get("tool_calls") != new.get("tool_calls"):
        return False
    texts = [old.get("content"), new.get("content")]
    first, second = (_THINKING.sub("", text).strip() if isinstance(text, str) else text for text in texts)
    return bool(texts[0] == texts[1] or (old.get("role") == "assistant" and (first or None) == (second or None)))
