"""Token ids to text, token by token, with the tokenizer whose digest a model version names. Reads model folders."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ledger.settings import Settings
from training.rollout.pretrained import version_digest


@dataclass(frozen=True)
class Decoder:
    """A byte-level tokenizer read for decoding.

    Attributes:
        folder: where the tokenizer is.
        pieces: token id to its bytes.
        special: ids of control tokens, such as the end of a message.
    """

    folder: Path
    pieces: dict[int, bytes]
    special: frozenset[int]

    def texts(self, token_ids: Sequence[int]) -> list[str]:
        """The text of each token by itself; bytes that are no text alone are written as `\\xNN`, an unknown id as `<id?>`."""
        return [self.pieces[i].decode("utf-8", "backslashreplace") if i in self.pieces else f"<{i}?>" for i in token_ids]

    def text(self, token_ids: Sequence[int]) -> str:
        """The text of all tokens together, control tokens included."""
        return b"".join(self.pieces.get(i, f"<{i}?>".encode()) for i in token_ids).decode("utf-8", "backslashreplace")


def find_folder(models: Path, tokenizer_digest: str) -> Path | None:
    """The folder below `models` whose manifest names this tokenizer digest; None when none is here."""
    for manifest in sorted(models.glob("*/tallystick.json")):
        try:
            about: Any = json.loads(manifest.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(about, dict) and about.get("tokenizer_sha256") == tokenizer_digest:
            return manifest.parent
    return None


def read_decoder(folder: Path) -> Decoder:
    """The decoder of the byte-level tokenizer in `folder/tokenizer.json`."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    added = tokenizer.get_added_tokens_decoder()
    byte_of = _byte_alphabet()
    pieces: dict[int, bytes] = {}
    for token, index in tokenizer.get_vocab(with_added_tokens=True).items():
        plain = index in added or any(character not in byte_of for character in token)
        pieces[index] = token.encode() if plain else bytes(byte_of[character] for character in token)
    return Decoder(folder, pieces, frozenset(index for index, token in added.items() if token.special))


def _byte_alphabet() -> dict[str, int]:
    """Character to byte, as byte-level tokenizers write bytes: printable ones as themselves, the others from U+0100 on."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + n): byte for n, byte in enumerate(hidden)}


@lru_cache(maxsize=16)
def decoder_of(models: Path, model_version: str) -> Decoder | None:
    """The decoder of a model version whose folder is below `models`; None when none is here."""
    for manifest in sorted(models.glob("*/tallystick.json")):
        if model_version.endswith(version_digest(manifest.parent)):
            return read_decoder(manifest.parent)
    return None


def decode(model_version: str, token_ids: Sequence[int]) -> str | None:
    """The text of tokens that a model version sampled, control tokens included; None when its tokenizer is not here."""
    found = decoder_of(Settings().data_dir / "models", model_version)
    return None if found is None else found.text(token_ids)
