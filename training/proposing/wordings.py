"""Requests in words: calls from their tools' descriptions, and wanted states place by place. Pure."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ledger.bundle import BundleDraft
from training.proposing.arguments import leaves_of, tool_name
from training.worlds import Change, ToolCall

ABSENT = "must not be set"
Wording = Callable[[Sequence[str]], str]

WORDINGS: Mapping[str, Wording] = {
    "plain": lambda parts: (
        "Please do the following in this order and change nothing else. " + " ".join(f"{part[:1].upper()}{part[1:]}." for part in parts)
    ),
    "numbered": lambda parts: (
        "These steps, one after the other, and nothing else:\n" + "\n".join(f"{n}. {part}" for n, part in enumerate(parts, start=1))
    ),
    "chatty": lambda parts: "Hi, could you help me? I need you to " + "; then ".join(parts) + ". Leave everything else as it is, thanks!",
    "terse": lambda parts: "To do: " + " / ".join(parts) + ". In this order; nothing else.",
}
"""Name to how parts of a request are put together."""


def user_request(base: BundleDraft, *turns: str) -> dict[str, Any]:
    """A request with one user message a turn, under the system text of the draft whose world it is asked in."""
    return {**base.request, "turns": [[{"role": "user", "content": text}] for text in turns]}


def action_of(call: ToolCall, tools: Sequence[Mapping[str, Any]], *, said: Mapping[tuple[str, ...], str] | None = None) -> str:
    """A call in words: the first sentence of its tool's description, then its arguments.

    Args:
        call: the call.
        tools: OpenAI tool schemas.
        said: argument path to the words that stand for its value.
    """
    described = {tool_name(tool): str(tool["function"].get("description") or "") for tool in tools}
    verb = (described.get(call.name) or call.name.replace("_", " ")).split(". ")[0].rstrip(".")
    verb = verb if verb[:2].isupper() else verb[:1].lower() + verb[1:]
    words = {path: said[path] if said and path in said else text(value) for path, value in leaves_of(call.arguments)}
    return verb if not words else f"{verb}, with " + ", ".join(f"{' '.join(path)} {word}" for path, word in words.items())


def goal_of(change: Change) -> str:
    """What must hold at a place after a change, in words."""
    return f"{place_of(change.path)} {ABSENT}" if change.after is None else f"{place_of(change.path)} must be {text(change.after)}"


def place_of(pointer: str) -> str:
    """An RFC 6901 pointer in words: its keys from the table down."""
    return " ".join(key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]) or "everything"


def text(value: Any) -> str:
    """A value as a request writes it: compact JSON, in readable characters."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
