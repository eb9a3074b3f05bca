"""Negative log-likelihood."""

import torch

from training.objectives import LossBatch, Outputs
from training.objectives._columns import masked, mean_of, new_logprobs


def supervised(outputs: Outputs, batch: LossBatch) -> tuple[torch.Tensor, dict[str, float]]:
    """-log p of each masked token in nats, 0 elsewhere, shape (T,); text-only rows are allowed.

    Args:
        outputs: the model's log-probabilities with gradient, shape (T,).
        batch: the mask, shape (T,).
    Returns:
        The loss, with `nll` (mean in nats) and `tokens` (what the mean was taken over).
    Raises:
        MethodError: shapes differ.

    Source: survey section S71, the masked negative log-likelihood.
    """
    loss_T = masked(-new_logprobs(outputs, batch), batch)
    return loss_T, {"nll": mean_of(loss_T, batch), "tokens": float(batch.mask_T.sum())}
