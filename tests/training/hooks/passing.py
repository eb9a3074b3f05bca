"""Passes a conversation through a hook, for the hooks' tests."""

from collections.abc import Mapping, Sequence
from typing import Any

from training.hooks import Hooked, Message, Payload, Point, hooks

CONVERSATION: tuple[Message, ...] = (
    {"role": "system", "content": "You work at a desk."},
    {"role": "user", "content": "Remind the owner of T1."},
    {"role": "assistant", "content": "<think>Which owner?</think>\nget_ticket T1"},
    {"role": "tool", "content": "T1 " + "x" * 97},
    {"role": "assistant", "content": "<think>Ann.\nShe it is.</think>mail ann@x.example T1"},
    {"role": "tool", "content": "sent"},
)


class Asked:
    """A model that summarises as `said`, and what it was asked."""

    def __init__(self, said: str = "T1 is Ann's.") -> None:
        self.said, self.asked = said, list[tuple[tuple[Message, ...], str]]()

    async def __call__(self, messages: Sequence[Message], role: str) -> str:
        self.asked.append((tuple(messages), role))
        return self.said


async def passed(
    name: str,
    point: Point,
    *,
    messages: Sequence[Message] = CONVERSATION,
    tool: Mapping[str, Any] | None = None,
    prompt_tokens: int | None = None,
    memory: Mapping[str, Any] | None = None,
    ask: Asked | None = None,
    **params: Any,
) -> Hooked:
    """What the hook makes of the conversation at the point."""
    payload = Payload(tuple(messages), tool, prompt_tokens)
    return await hooks.bind(name, **params).call(point, payload, memory or {}, ask or Asked())
