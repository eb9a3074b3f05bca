"""A policy's own tokenizer, made from texts: a word with the blank before it is one token, any other text falls into bytes. Pure."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from ledger.errors import PolicyFolderError
from training.models.folder import CONFIG, GENERATION, TEMPLATE, TOKENIZER, TOKENIZER_CONFIG, PolicyFiles
from training.models.presets import Preset, llama_config

PAD, END = "<|pad|>", "<|end|>"
ROLES = ("system", "user", "assistant", "tool")
SPECIAL = (PAD, END, *(f"<|{role}|>" for role in ROLES))
COMPACT = Path(__file__).parent / "templates" / "compact.jinja"
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
    """A policy's tokenizer with its template, as transformers reads them from a folder."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        if self._tokenizer.eos_token_id is None:
            raise PolicyFolderError(f"{folder}: the tokenizer has no eos_token; allowed: one that ends a message")

    @cached_property
    def end_id(self) -> int:
        """The token that ends a message."""
        return int(self._tokenizer.eos_token_id)

    def rendered(self, messages: Sequence[Mapping[str, Any]], *, answering: bool) -> str:
        """The text that the template makes of the messages, with the opening of the answer to come where `answering`."""
        return str(self._tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=answering))

    def encoded(self, rendered: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids of a rendered text, and for each the place of its characters."""
        found = self._tokenizer(rendered, add_special_tokens=False, return_offsets_mapping=True)
        return [int(token) for token in found["input_ids"]], [(int(a), int(b)) for a, b in found["offset_mapping"]]

    def ids(self, messages: Sequence[Mapping[str, Any]], *, answering: bool) -> list[int]:
        """Token ids of the messages, with the opening of the answer to come where `answering`."""
        return self.encoded(self.rendered(messages, answering=answering))[0]

    def text(self, ids: Sequence[int]) -> str:
        """The text of sampled tokens without special ones."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))


def _as_bytes(word: str) -> str:
    """A word as the byte-level pre-tokenizer writes it."""
    return "".join(piece for piece, _ in pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(word))


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, sort_keys=True) + "\n"
