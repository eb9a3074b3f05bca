"""Supervised traces: the messages of recorded rollouts as rows that nobody sampled as tokens, with the mask on what was answered. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import numpy as np

from ledger.canonical import parse
from ledger.errors import CanonicalError, TraceError
from training.rollout.tool_text import call_line, result_text
from training.rows import Row

Message = Mapping[str, Any]


class Template(Protocol):
    """A policy's chat template with its tokenizer; `training.models.tokenizer.Chat` is one."""

    def rendered(self, messages: Sequence[Message], *, answering: bool) -> str:
        """The text that the template makes of the messages.

        Raises:
            TraceError: it refuses them.
        """
        ...

    def encoded(self, rendered: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids of a rendered text, and for each the place of its characters."""
        ...


@dataclass(frozen=True)
class Trace:
    """What was said in a rollout, in order.

    Attributes:
        rollout_id: whose.
        participant: whose answers are learnt.
        messages: role and content of each; an answer's tool calls stand in its content, see `compact_messages`.
    """

    rollout_id: str
    participant: str
    messages: tuple[Message, ...]


def compact_messages(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    """The messages in the compact form: a tool call as one line of text, a tool's JSON result as its values.

    Args:
        messages: as a chat completion request holds them; messages that are compact already stay as they are.
        tools: OpenAI tool schemas.

    Raises:
        TraceError: an answer with several calls, which has no compact form, or a call of a tool that is not in `tools`.
    """
    found: list[Message] = []
    for message in messages:
        calls = message.get("tool_calls") or ()
        content = str(message.get("content") or "")
        if len(calls) > 1:
            raise TraceError(f"an answer with {len(calls)} tool calls; allowed in the compact form: one call an answer")
        if calls:
            content = _line(calls[0]["function"], tools)
        elif message["role"] == "tool":
            content = result_text(content)
        found.append({"role": message["role"], "content": content})
    return tuple(found)


def trace_row(trace: Trace, template: Template) -> Row:
    """One supervised row of the whole conversation; its mask is on the tokens of every answer with the end of the answer included.

    Raises:
        TraceError: nothing was answered, the template renders a conversation's beginning otherwise than the conversation, or a token
            lies half in an answer; such a conversation has no prefix that a policy could have gone on from.
    """
    whole = template.rendered(trace.messages, answering=False)
    spans = _spans(trace, template, whole)
    ids, places = template.encoded(whole)
    first_T, last_T = np.array(places, dtype=np.int64).reshape(-1, 2).T
    mask = np.zeros(len(ids), dtype=np.bool_)
    step = np.full(len(ids), -1, dtype=np.int32)
    for number, (start, end) in enumerate(spans):
        inside = np.flatnonzero((first_T < end) & (last_T > start))
        if not len(inside) or first_T[inside[0]] != start or last_T[inside[-1]] != end:
            raise TraceError(f"rollout {trace.rollout_id}: answer {number} does not begin and end with a token of its own")
        mask[inside], step[inside] = True, number
    nothing = np.full(len(ids), np.nan, dtype=np.float32)
    return Row(
        trace.rollout_id, 0, trace.participant, np.array(ids, dtype=np.int32), mask, nothing, step, (), "start", None, text_only=True
    )


def _spans(trace: Trace, template: Template, whole: str) -> list[tuple[int, int]]:
    """Where each answer's characters lie in the rendered conversation, from the end of its opening to the end of its last special token."""
    answers = [place for place, message in enumerate(trace.messages) if message["role"] == "assistant"]
    if not answers:
        raise TraceError(f"rollout {trace.rollout_id}: no message of role assistant among {len(trace.messages)}")
    return _by_lengths(trace, answers, template, whole) or [_span(trace, place, template, whole) for place in answers]


def _by_lengths(trace: Trace, answers: Sequence[int], template: Template, whole: str) -> list[tuple[int, int]] | None:
    """The places as they follow from the lengths of the messages' own texts; None where these are not the conversation.

    Where every message renders by itself as it does among the others, each beginning of the conversation is rendered as the conversation
    begins. Of the openings of the answers, which are one text then, the first and the last are looked at.
    """
    try:
        parts = [template.rendered([message], answering=False) for message in trace.messages]
    except TraceError:
        # A template may refuse a conversation that begins with what is no beginning.
        return None
    if "".join(parts) != whole or answers[0] == 0:
        return None
    begins = [0, *accumulate(map(len, parts))]
    before = {place: template.rendered(trace.messages[:place], answering=True) for place in (answers[0], answers[-1])}
    opening = before[answers[0]][begins[answers[0]] :]
    if any(text != whole[: begins[place]] + opening for place, text in before.items()):
        return None
    if not all(parts[place].startswith(opening) for place in answers):
        return None
    return [(begins[place] + len(opening), begins[place + 1]) for place in answers]


def _span(trace: Trace, place: int, template: Template, whole: str) -> tuple[int, int]:
    """The same of one answer, from the conversation rendered up to it and through it."""
    before = template.rendered(trace.messages[:place], answering=True)
    through = template.rendered(trace.messages[: place + 1], answering=False)
    if not whole.startswith(through) or not through.startswith(before):
        raise TraceError(f"rollout {trace.rollout_id}: the template does not go on from message {place - 1}; an append-only one is needed")
    return len(before), len(through)


def _line(function: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> str:
    try:
        return call_line(str(function["name"]), parse(str(function["arguments"])), tools)
    except (CanonicalError, LookupError, TypeError) as error:
        raise TraceError(f"a call of {function['name']!r} has no compact form: {error}") from error
