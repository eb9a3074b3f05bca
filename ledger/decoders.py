"""Text of token ids, from whichever installed package knows a model version's tokenizer; the ledger knows none. Loads entry points."""

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import cast

GROUP = "tallystick.decoders"
Decoder = Callable[[str, Sequence[int]], str | None]
"""(model version, token ids) to their text, or None when it does not know the model version's tokenizer."""


def installed_decoder() -> Decoder | None:
    """A decoder that asks every installed one in turn; None when there is none."""
    loaded = [cast(Decoder, point.load()) for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)]
    if not loaded:
        return None

    def decode(model_version: str, token_ids: Sequence[int]) -> str | None:
        return next((text for decoder in loaded if (text := decoder(model_version, token_ids)) is not None), None)

    return decode
