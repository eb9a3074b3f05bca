"""Negative log-likelihood weighted by an advantage or score."""

from typing import Literal

import torch

from ledger.errors import MethodError
from training.objectives import LossBatch, Outputs
from training.objectives._columns import advantages_of, masked, mean_of, new_logprobs


def weighted_supervised(
    outputs: Outputs, batch: LossBatch, *,
    weight: Literal["positive", "exponential", "signed"] = "positive", beta: float = 1.0, max_weight: float = 20.0,
) -> tuple[torch.Tensor, dict[str, float]]:  # fmt: skip
    """-w log p of each masked token, 0 elsewhere, shape (T,), w from the advantage or score A in `adv_T`; no ratio, so text-only rows pass.

    Args:
        outputs: the model's log-probabilities in nats with gradient, shape (T,).
        batch: mask and `adv_T`, which may hold scores in place of advantages.
        weight: `positive` max(A, 0); `exponential` min(exp(A / beta), max_weight); `signed` A itself, which has no lower bound.
        beta: temperature in units of A, above 0.
        max_weight: above 0.
    Returns:
        The loss, with `weight_mean`, `capped_fraction` (weights held down to `max_weight`), `nll` and `tokens`.
    Raises:
        MethodError: shapes differ, there is no advantage, one is not finite, or a parameter is out of its range.

    Source: advantage-weighted regression, arXiv 1910.00177, algorithm 1 (weights capped at 20, as its code does); `positive` with
    rewards 0 and 1 is rejection sampling.
    """
    if weight not in ("positive", "exponential", "signed") or not (beta > 0 and max_weight > 0):
        raise MethodError(f"weight {weight!r}, beta {beta}, max_weight {max_weight}; allowed: positive, exponential or signed, and above 0")
    new_T = new_logprobs(outputs, batch)
    adv_T = advantages_of(batch, new_T)
    capped_T = torch.zeros_like(adv_T)
    if weight == "exponential":
        grown_T = torch.exp((adv_T / beta).clamp(max=80.0))
        capped_T = (grown_T > max_weight).to(adv_T.dtype)
        weight_T = grown_T.clamp(max=max_weight)
    else:
        weight_T = adv_T.clamp(min=0.0) if weight == "positive" else adv_T
    return masked(-weight_T * new_T, batch), {
        "nll": mean_of(-new_T, batch), "weight_mean": mean_of(weight_T, batch), "capped_fraction": mean_of(capped_T, batch),
        "tokens": float(batch.mask_T.sum()),
    }  # fmt: skip
