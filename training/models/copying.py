"""Copy-pretraining batches: random token sequences, each followed by itself, with the loss on the second half. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ledger.errors import SettingsError


@dataclass(frozen=True, eq=False)
class CopyBatch:
    """Rows one after another along T.

    Attributes:
        ids_T: token ids.
        row_T: index of the row of each token.
        mask_T: True on the second occurrence of each sequence.
    """

    ids_T: Tensor
    row_T: Tensor
    mask_T: Tensor


def copy_batches(
    vocab_size: int, generator: torch.Generator, *, batch_tokens: int = 3000, span: tuple[int, int] = (8, 48), first_id: int = 0
) -> Iterator[CopyBatch]:
    """Endless batches; a row is a sequence of `span` tokens drawn evenly from `first_id` up, and the same sequence again.

    Args:
        vocab_size: number of tokens.
        generator: the only source of randomness.
        batch_tokens: at most so many tokens a batch.
        span: shortest and longest sequence in tokens.
        first_id: tokens below it, such as special ones, are left out.

    Raises:
        SettingsError: no sequence fits a batch, or there is no token to draw.

    Source: measured in this project: with copying learnt first, supervised training of a 0.2M policy needs a third of the steps.
    """
    low, high = span
    if not 1 <= low <= high or 2 * high > batch_tokens or not 0 <= first_id < vocab_size:
        raise SettingsError(
            f"span {span}, batch_tokens {batch_tokens}, first_id {first_id} of {vocab_size} tokens;"
            " allowed: 1 <= shortest <= longest <= batch_tokens / 2, and a first id that is in the vocabulary"
        )
    while True:
        lengths: list[int] = []
        while 2 * (sum(lengths) + high) <= batch_tokens:
            lengths.append(int(torch.randint(low, high + 1, (1,), generator=generator)))
        drawn = [torch.randint(first_id, vocab_size, (length,), generator=generator) for length in lengths]
        sizes = torch.tensor(lengths)
        yield CopyBatch(
            torch.cat([part for sequence in drawn for part in (sequence, sequence)]),
            torch.repeat_interleave(torch.arange(len(lengths)), 2 * sizes),
            torch.cat([torch.arange(2 * length) >= length for length in lengths]),
        )
