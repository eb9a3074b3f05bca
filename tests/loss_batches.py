"""Small loss batches by hand. Pure."""

from collections.abc import Sequence

import torch

from training.objectives import LossBatch, Outputs


def column(values: Sequence[float]) -> torch.Tensor:
    return torch.tensor(list(values), dtype=torch.float64)


def outputs_of(values: Sequence[float]) -> Outputs:
    """Log-probabilities with gradient."""
    return Outputs(column(values).requires_grad_())


def batch_of(
    mask: Sequence[bool], *, adv: Sequence[float] | None = None, text_only: Sequence[bool] | None = None, rows: Sequence[int] | None = None,
    pairs: Sequence[tuple[int, int]] | None = None, **logprobs: Sequence[float],
) -> LossBatch:  # fmt: skip
    """A batch along T with float64 columns."""
    return LossBatch(
        mask_T=torch.tensor(list(mask), dtype=torch.bool),
        adv_T=None if adv is None else column(adv),
        logprobs={name: column(values) for name, values in logprobs.items()},
        pairs_P2=None if pairs is None else torch.tensor(pairs, dtype=torch.int64),
        row_T=None if rows is None else torch.tensor(list(rows), dtype=torch.int64),
        text_only_T=None if text_only is None else torch.tensor(list(text_only), dtype=torch.bool),
    )


def gradient(loss: torch.Tensor, outputs: Outputs) -> list[float]:
    """Gradient of the sum of the losses by each log-probability."""
    (found,) = torch.autograd.grad(loss.sum(), outputs.logprob_T)
    return found.tolist()
