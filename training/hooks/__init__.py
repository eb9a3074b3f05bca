"""Hooks of a harness at five points: before and after the model, before and after a tool, context full. One file a hook."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ledger.methods import Bound, Family

Point = Literal["before_model", "after_model", "before_tool", "after_tool", "context_full"]
POINTS: tuple[Point, ...] = ("before_model", "after_model", "before_tool", "after_tool", "context_full")
Message = Mapping[str, Any]
AskModel = Callable[[Sequence[Message], str], Awaitable[str]]
"""(messages, role) to the model's text: a recorded call of its own, such as a summary."""


@dataclass(frozen=True)
class Payload:
    """What passes a point: the conversation, and the one thing that is about to happen or has happened.

    Attributes:
        messages: the conversation as the model is, or was, shown it.
        tool: before and after a tool: name, arguments and, after, result and error_class (None, or why the call was refused). A hook
            that sets both before the tool refuses the call with them; the result that it sets after the tool is what the policy is shown.
        prompt_tokens: prompt tokens of the last call, None before the first.
    """

    messages: tuple[Message, ...]
    tool: Mapping[str, Any] | None = None
    prompt_tokens: int | None = None


@dataclass(frozen=True)
class Rewrite:
    """What a hook changed in the history, for a `HistoryRewritten` event: messages dropped and kept, the summary, and a reason
    (compaction, truncation, thinking_stripped, ...)."""

    dropped: int
    kept: int
    reason: str
    summary: str | None = None


@dataclass(frozen=True)
class Hooked:
    """What a hook returns: the payload, its own memory for the next time, and what it rewrote."""

    payload: Payload
    memory: Mapping[str, Any] = field(default_factory=dict)
    rewrites: tuple[Rewrite, ...] = ()


class Hook(Protocol):
    """The signature of every hook; it returns the payload as it is at points that do not concern it.

    Its attributes `rewrites` and `asks` say whether it may change what the conversation already holds, and whether it may ask the model;
    set them with `rewrites` of `training.hooks._declared`. One that does not rewrite may append. What it changes, it says in a `Rewrite`.
    A user message that it appends after an answer without a call is answered before the turn ends.
    """

    async def __call__(self, point: Point, payload: Payload, memory: Mapping[str, Any], ask: AskModel) -> Hooked:
        """The payload after the hook."""
        ...


hooks: Family[Hook] = Family("training.hooks")


def rewriting(bound: Sequence[Bound[Hook]]) -> list[str]:
    """Names of the hooks that may change what a conversation already holds, in their order."""
    return [hook.ref.name for hook in bound if getattr(hooks[hook.ref.name], "rewrites", True)]


def asking(bound: Sequence[Bound[Hook]]) -> list[str]:
    """Names of the hooks that may ask the model for a summary, in their order."""
    return [hook.ref.name for hook in bound if getattr(hooks[hook.ref.name], "asks", True)]
