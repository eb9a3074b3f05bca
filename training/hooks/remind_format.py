"""Tells a policy how a tool is called when it wrote a call as text. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ledger.errors import MethodError
from training.hooks import AskModel, Hooked, Payload, Point
from training.hooks._declared import rewrites
from training.rollout.tool_text import has_markup

REMINDER = "Nothing was called: your answer held a tool call as text that could not be read. Call the tool again."


@rewrites(False)
async def remind_format(
    point: Point, payload: Payload, memory: Mapping[str, Any], ask: AskModel, *, times: int = 2, text: str = REMINDER
) -> Hooked:
    """The conversation with a user message at its end after an answer that has tool-call markup and no tool call.

    Without it such an answer ends the user turn.

    Args:
        times: how often at most in one conversation.
        text: what the message says.
    Raises:
        MethodError: `times` is below 1, or there is no text.
    """
    if times < 1 or not text:
        raise MethodError(f"times is {times} and text {text!r}; allowed: from 1 on, and some text")
    answer = payload.messages[-1] if payload.messages else {}
    said = int(memory.get("said", 0))
    if point != "after_model" or answer.get("tool_calls") or said >= times:
        return Hooked(payload, memory)
    if not has_markup(answer.get("content") or ""):
        return Hooked(payload, memory)
    return Hooked(replace(payload, messages=(*payload.messages, {"role": "user", "content": text})), {"said": said + 1})
