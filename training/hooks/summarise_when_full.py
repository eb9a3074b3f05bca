"""Replaces the middle of a long conversation by a summary. Asks the model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ledger.errors import MethodError
from training.hooks import AskModel, Hooked, Message, Payload, Point, Rewrite
from training.hooks._declared import rewrites

INSTRUCTION = "Summarise the work so far for yourself: what was asked, what you found out, what you did, what is left. Call no tool."
HEAD = "Summary of the work so far:\n"


@rewrites(True, asks=True)
async def summarise_when_full(
    point: Point,
    payload: Payload,
    memory: Mapping[str, Any],
    ask: AskModel,
    *,
    at_tokens: int | None = None,
    keep: int = 4,
    instruction: str = INSTRUCTION,
) -> Hooked:
    """The conversation with all between its head and its newest messages replaced by a summary, when it is full.

    The head is what stands before the first answer, an earlier summary excepted. The summary is a user message. It is asked for in a call
    of its own, role `summary`, whose prompt is the conversation up to the messages that stay, with the instruction at its end.

    Args:
        at_tokens: full is also a conversation whose last prompt had so many tokens; None: only when a limit was met.
        keep: so many of the newest messages stay, and more where they would begin with a tool's result.
        instruction: what asks for the summary.
    Raises:
        MethodError: a parameter is out of its range.
    """
    if keep < 0 or (at_tokens is not None and at_tokens < 1):
        raise MethodError(f"keep is {keep} and at_tokens {at_tokens}; allowed: from 0 on, and from 1 on")
    long = at_tokens is not None and payload.prompt_tokens is not None and payload.prompt_tokens >= at_tokens
    if point != "context_full" and not (point == "before_model" and long):
        return Hooked(payload, memory)
    messages = payload.messages
    head, tail = _head(messages), _tail(messages, keep)
    if tail <= head:
        return Hooked(payload, memory)
    summary = await ask((*messages[:tail], {"role": "user", "content": instruction}), "summary")
    after = (*messages[:head], {"role": "user", "content": HEAD + summary}, *messages[tail:])
    rewrite = Rewrite(tail - head, len(after) - 1, "compaction", summary)
    return Hooked(replace(payload, messages=after), memory, (rewrite,))


def _head(messages: Sequence[Message]) -> int:
    for place, message in enumerate(messages):
        if message["role"] == "assistant" or str(message.get("content", "")).startswith(HEAD):
            return place
    return len(messages)


def _tail(messages: Sequence[Message], keep: int) -> int:
    place = len(messages) - keep
    while 0 < place < len(messages) and messages[place]["role"] == "tool":
        place -= 1
    return place
