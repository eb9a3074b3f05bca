"""Cuts long tool results. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ledger.errors import MethodError
from training.hooks import AskModel, Hooked, Message, Payload, Point, Rewrite
from training.hooks._declared import rewrites

SHORTEST = 40


@rewrites(True)
async def truncate_tool_output(
    point: Point, payload: Payload, memory: Mapping[str, Any], ask: AskModel, *, characters: int = 2000, keep: int = 0
) -> Hooked:
    """The conversation before the model with every tool result cut to at most `characters`, the mark of the cut included.

    The record of the tool call has the whole result. `dropped` counts the results that were cut.

    Args:
        characters: longest result, from 40.
        keep: so many of the newest results are shown whole; with 0 a result is cut before it is first shown, and no prompt that was
            sampled from changes.
    Raises:
        MethodError: a parameter is out of its range.
    """
    if characters < SHORTEST or keep < 0:
        raise MethodError(f"characters is {characters} and keep {keep}; allowed: from {SHORTEST} on, and from 0 on")
    if point != "before_model":
        return Hooked(payload, memory)
    results = [place for place, message in enumerate(payload.messages) if message["role"] == "tool"]
    messages: list[Message] = list(payload.messages)
    for place in results[: len(results) - keep]:
        text = str(messages[place]["content"])
        if len(text) > characters:
            messages[place] = {**messages[place], "content": _cut(text, characters)}
    changed = sum(new is not old for new, old in zip(messages, payload.messages, strict=True))
    if not changed:
        return Hooked(payload, memory)
    rewrite = Rewrite(changed, len(messages) - changed, "truncation")
    return Hooked(replace(payload, messages=tuple(messages)), memory, (rewrite,))


def _cut(text: str, characters: int) -> str:
    mark = f" [cut: {len(text)} characters]"
    return text[: characters - len(mark)] + mark
