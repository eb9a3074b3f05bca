"""Takes the thinking out of earlier answers. Pure."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ledger.errors import MethodError
from training.hooks import AskModel, Hooked, Message, Payload, Point, Rewrite
from training.hooks._declared import rewrites

_THINKING = re.compile(r"<think>.*?</think>\s*", re.DOTALL)


@rewrites(True)
async def strip_thinking(point: Point, payload: Payload, memory: Mapping[str, Any], ask: AskModel, *, keep: int = 0) -> Hooked:
    """The conversation before the model without what stands between `<think>` and `</think>` in its answers.

    Thinking that was cut, so that its end is missing, stays. `dropped` counts the answers that changed.

    Args:
        keep: so many of the newest answers keep their thinking.
    Raises:
        MethodError: `keep` is negative.

    Source: the chat templates of Qwen3 and DeepSeek-R1, which render earlier answers without their thinking.
    """
    if keep < 0:
        raise MethodError(f"keep is {keep}; allowed: 0 or more answers")
    if point != "before_model":
        return Hooked(payload, memory)
    answers = [place for place, message in enumerate(payload.messages) if message["role"] == "assistant"]
    messages: list[Message] = list(payload.messages)
    for place in answers[: len(answers) - keep]:
        bare = _THINKING.sub("", messages[place].get("content") or "")
        if bare != (messages[place].get("content") or ""):
            messages[place] = {**messages[place], "content": bare}
    changed = sum(new is not old for new, old in zip(messages, payload.messages, strict=True))
    if not changed:
        return Hooked(payload, memory)
    rewrite = Rewrite(changed, len(messages) - changed, "thinking_stripped")
    return Hooked(replace(payload, messages=tuple(messages)), memory, (rewrite,))
