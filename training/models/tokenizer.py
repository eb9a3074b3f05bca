"""A policy's own tokenizer, made from texts: a word with the blank before it is one token, any other text falls into bytes. Pure."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from ledger.errors import PolicyFolderError, TraceError
from training.models.folder import CONFIG, GENERATION, TEMPLATE, TOKENIZER, TOKENIZER_CONFIG, PolicyFiles, read_files
from training.models.presets import Preset, llama_config

PAD, END = "<|pad|>", "<|end|>"
ROLES = ("system", "user", "assistant", "tool")
SPECIAL = (PAD, END, *(f"<|{role}|>" for role in ROLES))
COMPACT = Path(__file__).parent / "templates" / "compact.jinja"
_SPECIAL_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")
_WORD = r" ?\S+|\s"


def trained_tokenizer(texts: Iterable[str], *, at_least: int = 1) -> Tokenizer:
    """A tokenizer with one token for every word of the texts; the same texts in any order give the same one.

    Ids and mail addresses are one token each, so that copying one is one step. Every other text is still encoded without loss, byte
    by byte.

    Args:
        texts: contents of messages.
        at_least: how often a word must stand in them to have a token.
    """
    words: Counter[str] = Counter()
    for text in texts:
        words.update(text.split())
    split = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_WORD), behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    bytewise = sorted(pre_tokenizers.ByteLevel.alphabet())
    kept = [_as_bytes(f" {word}") for word in sorted(words) if words[word] >= at_least]
    vocabulary = {token: place for place, token in enumerate(dict.fromkeys([*SPECIAL, *bytewise, *kept]))}
    # Without merges a word that has no token of its own falls into single bytes; `ignore_merges` looks whole words up first.
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return tokenizer


def policy_files(tokenizer: Tokenizer, preset: Preset) -> PolicyFiles:
    """Everything of a policy folder but its weights, for a new policy of that size with that tokenizer and the compact template."""
    end, pad = tokenizer.token_to_id(END), tokenizer.token_to_id(PAD)
    assert end is not None
    assert pad is not None
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": preset.context,
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
        "eos_token": END,
        "pad_token": PAD,
    }
    config = llama_config(preset, vocab_size=tokenizer.get_vocab_size(), end_id=end, pad_id=pad)
    return PolicyFiles(
        {
            CONFIG: _json(config),
            GENERATION: _json({"eos_token_id": end, "pad_token_id": pad}),
            TOKENIZER: tokenizer.to_str(pretty=True),
            TOKENIZER_CONFIG: _json(about),
            TEMPLATE: COMPACT.read_text(encoding="utf-8"),
        }
    )


class Chat:
    """A policy's tokenizer with its template, read from its folder.

    Attributes:
        end_id: the token that ends a message.
    """

    def __init__(self, folder: Path) -> None:
        """Read both.

        Raises:
            PolicyFolderError: a file is missing, or the tokenizer names no token that ends a message.
        """
        # Everything else of transformers takes seconds to import, and would give the same texts and ids.
        from transformers.utils.chat_template_utils import render_jinja_template

        self._render: Any = render_jinja_template
        texts = read_files(folder).texts
        self._tokenizer, self._template = Tokenizer.from_str(texts[TOKENIZER]), texts[TEMPLATE]
        about: dict[str, Any] = json.loads(texts[TOKENIZER_CONFIG])
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._special = {name: _token_text(about[name]) for name in _SPECIAL_NAMES if about.get(name)}
        end = self._tokenizer.token_to_id(self._special["eos_token"]) if "eos_token" in self._special else None
        if end is None:
            raise PolicyFolderError(f"{folder}: the tokenizer has no eos_token; allowed: one that ends a message")
        self.end_id = int(end)

    def rendered(self, messages: Sequence[Mapping[str, Any]], *, answering: bool) -> str:
        """The text that the template makes of the messages, with the opening of the answer to come where `answering`.

        Raises:
            TraceError: the template refuses them.
        """
        try:
            (text,), _ = self._render([list(messages)], chat_template=self._template, add_generation_prompt=answering, **self._special)
        except TemplateError as error:
            raise TraceError(f"the chat template refuses these messages: {str(error)[:200]}") from error
        return str(text)

    def encoded(self, rendered: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids of a rendered text, and for each the place of its characters."""
        found = self._tokenizer.encode(rendered, add_special_tokens=False)
        return found.ids, found.offsets

    def ids(self, messages: Sequence[Mapping[str, Any]], *, answering: bool) -> list[int]:
        """Token ids of the messages, with the opening of the answer to come where `answering`."""
        return self.encoded(self.rendered(messages, answering=answering))[0]

    def text(self, ids: Sequence[int]) -> str:
        """The text of sampled tokens without special ones."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))


def _token_text(stated: Any) -> str:
    return str(stated["content"]) if isinstance(stated, dict) else str(stated)


def _as_bytes(word: str) -> str:
    """A word as the byte-level pre-tokenizer writes it."""
    return "".join(piece for piece, _ in pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(word))


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, sort_keys=True) + "\n"
