"""Token ids for scripted answers: a word is a token, by a chat template and a vocabulary of their own. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from zlib import crc32

from ledger.tokens import ids_bytes, logprob_bytes
from training.rollout.capture import TokenTrace
from training.worlds import AssistantTurn

END = 1
_ROLES = {"system": 2, "user": 3, "assistant": 4, "tool": 5}
_FIRST_WORD = 16
_WORDS = 50_000
_WORD = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")


def said(turn: AssistantTurn) -> str:
    """The text of an answer, its tool calls as markup."""
    return markup(turn.content, turn.tool_calls)


def markup(content: str | None, calls: Iterable[tuple[str, str]]) -> str:
    """The text of an answer with these tool calls (name, arguments)."""
    told = "".join(f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>' for name, arguments in calls)
    return (content or "") + told


def words(text: str) -> list[str]:
    """The text in tokens; joined again they are the text, and the beginning of a text has the beginning of its tokens."""
    return _WORD.findall(text)


def prompt_ids(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[int]:
    """A conversation up to where the answer begins; of the tools their names."""
    ids: list[int] = []
    if tools:
        ids += [_ROLES["system"], *_ids(" ".join(tool["function"]["name"] for tool in tools)), END]
    for message in messages:
        calls = ((call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ())
        ids += [_ROLES[message["role"]], *_ids(markup(message.get("content"), calls)), END]
    return [*ids, _ROLES["assistant"]]


def trace(prompt: Sequence[int], text: str, *, ended: bool) -> TokenTrace:
    """What sampling this text after this prompt leaves; an answer that was cut has no end token."""
    ids = [*_ids(text), *([END] if ended else [])]
    logprobs = [-0.01 - (token % 97) / 200 for token in ids]
    return TokenTrace(ids_bytes(prompt), ids_bytes(ids), logprob_bytes(logprobs))


def _ids(text: str) -> tuple[int, ...]:
    return _cached(text) if len(text) < 20_000 else _encode(text)


def _encode(text: str) -> tuple[int, ...]:
    return tuple(_FIRST_WORD + crc32(word.encode("utf-8", "replace")) % _WORDS for word in words(text))


_cached = lru_cache(4096)(_encode)
