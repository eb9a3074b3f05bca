"""Messages to token ids and back, with a model folder's own chat template and tokenizer. Reads model folders."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
from tokenizers import Tokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from ledger.errors import EngineFailed, SettingsError

KEPT_PIECES = 65536
# Its annotation names one string; it returns the texts and what was generated in them.
_render: Any = render_jinja_template
_SPLITTERS = {"ByteLevel", "WhitespaceSplit", "Whitespace", "Digits", "Split", "Punctuation", "BertPreTokenizer", "CharDelimiterSplit"}


class ChatText:
    """A folder's template and tokenizer.

    Text between control tokens is encoded once and remembered, where the tokenizer is known to encode such pieces independently of what
    stands around them; a tokenizer that may not is given each conversation whole.

    Attributes:
        stop_ids: ids that end an answer.
        by_pieces: whether pieces are remembered.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            self._template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
            about = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
            written: dict[str, Any] = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise EngineFailed(f"{folder} has no {Path(error.filename).name}; expected a model folder in Hugging Face form") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._special = {name: _token(about[name]) for name in ("bos_token", "eos_token", "pad_token", "unk_token") if about.get(name)}
        self.stop_ids = _stop_ids(folder, self._tokenizer, self._special)
        control = {token["content"]: int(token["id"]) for token in written.get("added_tokens") or ()}
        self.by_pieces = bool(control) and _independent(written)
        self._control = control
        # The longest first, as the tokenizer itself prefers.
        self._cut = re.compile("(" + "|".join(map(re.escape, sorted(control, key=len, reverse=True))) + ")") if control else None
        self._piece = lru_cache(KEPT_PIECES)(self._encode)
        self.token_text = lru_cache(KEPT_PIECES)(self._token_text)

    def prompt_ids(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """Token ids of a conversation up to where the answer begins.

        Raises:
            SettingsError: the template refuses the messages.
        """
        text = self.rendered(messages, tools)
        if not self.by_pieces or self._cut is None:
            return list(self._encode(text))
        ids: list[int] = []
        for n, piece in enumerate(self._cut.split(text)):
            if n % 2:
                ids.append(self._control[piece])
            elif piece:
                ids.extend(self._piece(piece))
        return ids

    def rendered(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> str:
        """The text that the template makes of a conversation, the head of the answer included."""
        shown = [_with_parsed_arguments(message) for message in messages]
        given: Any = [dict(tool) for tool in tools] or None
        try:
            texts, _ = _render([shown], tools=given, chat_template=self._template, add_generation_prompt=True, **self._special)
        except jinja2.TemplateError as error:
            raise SettingsError(f"the chat template refuses these messages: {str(error)[:200]}") from error
        return str(texts[0])

    def text(self, ids: Sequence[int]) -> str:
        """The text of an answer, control tokens left out."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def _token_text(self, token_id: int) -> str:
        return self._tokenizer.decode([token_id], skip_special_tokens=False)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)


def _with_parsed_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as vLLM gives it to a template: arguments of tool calls as objects where they are JSON."""
    if not message.get("tool_calls"):
        return dict(message)
    calls = []
    for call in message["tool_calls"]:
        function = dict(call["function"])
        if isinstance(function.get("arguments"), str):
            try:
                function["arguments"] = json.loads(function["arguments"])
            except ValueError:
                pass
        calls.append({**call, "function": function})
    return {**message, "tool_calls": calls}


def _token(stated: Any) -> str:
    return str(stated["content"]) if isinstance(stated, dict) else str(stated)


def _stop_ids(folder: Path, tokenizer: Tokenizer, special: Mapping[str, str]) -> frozenset[int]:
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        if (folder / name).is_file():
            stated = json.loads((folder / name).read_text(encoding="utf-8")).get("eos_token_id")
            found |= set(stated) if isinstance(stated, list) else set() if stated is None else {int(stated)}
    if "eos_token" in special and (end := tokenizer.token_to_id(special["eos_token"])) is not None:
        found.add(end)
    if not found:
        raise EngineFailed(f"{folder} names no end-of-sequence token in generation_config.json, config.json or tokenizer_config.json")
    return frozenset(found)


def _independent(written: Mapping[str, Any]) -> bool:
    """Whether text between added tokens is encoded the same whatever stands around it."""
    if written.get("normalizer") is not None:
        return False
    if any(token.get(flag) for token in written.get("added_tokens") or () for flag in ("lstrip", "rstrip", "single_word", "normalized")):
        return False
    stated = written.get("pre_tokenizer") or {"type": "Split"}
    parts = stated["pretokenizers"] if stated["type"] == "Sequence" else [stated]
    return all(part["type"] in _SPLITTERS and not part.get("add_prefix_space") for part in parts)
