"""Columns that an objective needs, refused where they do not hold. Pure."""

import torch

from ledger.errors import MethodError
from training.objectives import LossBatch, Outputs


def log_ratio_base(batch: LossBatch, name: str, new_T: torch.Tensor) -> torch.Tensor:
    """The log-probability column `name`, and the model's own values outside the mask, so that nothing unknown reaches a gradient.

    Raises:
        MethodError: the column is missing, has another shape, is not finite on a masked token, or a masked token is of a text-only row.
    """
    refuse_text_only(batch)
    if name not in batch.logprobs:
        raise MethodError(f"no log-probabilities named {name!r}; the batch has {', '.join(sorted(batch.logprobs)) or 'none'}")
    column_T = batch.logprobs[name]
    if column_T.shape != new_T.shape:
        raise MethodError(f"{name!r} has shape {tuple(column_T.shape)}; allowed: {tuple(new_T.shape)}")
    unknown = int((batch.mask_T & ~torch.isfinite(column_T)).sum())
    if unknown:
        raise MethodError(
            f"{unknown} masked tokens have no {name!r} log-probability; allowed: finite nats on every masked token, never 0 for none"
        )
    return torch.where(batch.mask_T, column_T.to(new_T.dtype), new_T.detach())


def refuse_text_only(batch: LossBatch) -> None:
    """Raises MethodError where the mask covers a token of a row that nobody sampled as tokens."""
    if batch.text_only_T is None:
        return
    found = int((batch.mask_T & batch.text_only_T).sum())
    if found:
        raise MethodError(f"{found} masked tokens are of text-only rows; allowed: rows of sampled tokens, for their ratios are known")


def advantages_of(batch: LossBatch, new_T: torch.Tensor) -> torch.Tensor:
    """Advantages along T in the model's dtype, 0 outside the mask.

    Raises:
        MethodError: there are none, they have another shape, or one on a masked token is not finite.
    """
    if batch.adv_T is None or batch.adv_T.shape != new_T.shape:
        have = "none" if batch.adv_T is None else f"shape {tuple(batch.adv_T.shape)}"
        raise MethodError(f"advantages: {have}; allowed: shape {tuple(new_T.shape)}")
    unknown = int((batch.mask_T & ~torch.isfinite(batch.adv_T)).sum())
    if unknown:
        raise MethodError(f"{unknown} masked tokens have no finite advantage; allowed: a finite number on each")
    return torch.where(batch.mask_T, batch.adv_T.to(new_T.dtype), 0.0)


def masked(value_T: torch.Tensor, batch: LossBatch) -> torch.Tensor:
    """`value_T` where the mask is True, 0 elsewhere."""
    return torch.where(batch.mask_T, value_T, torch.zeros_like(value_T))


def mean_of(value_T: torch.Tensor, batch: LossBatch) -> float:
    """Mean over the masked tokens, 0 without any; `tokens` of the metrics says over how many."""
    return float(masked(value_T.detach(), batch).sum() / batch.mask_T.sum().clamp(min=1))


def new_logprobs(outputs: Outputs, batch: LossBatch) -> torch.Tensor:
    """The model's log-probabilities, shape (T,).

    Raises:
        MethodError: mask and log-probabilities differ in shape.
    """
    if outputs.logprob_T.shape != batch.mask_T.shape:
        raise MethodError(f"log-probabilities of shape {tuple(outputs.logprob_T.shape)}; allowed: the mask's {tuple(batch.mask_T.shape)}")
    return outputs.logprob_T
