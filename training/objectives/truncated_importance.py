"""The policy gradient corrected for the gap between the engine that sampled and the trainer, with a truncated importance weight."""

from typing import Literal

import torch

from ledger.errors import MethodError
from training.objectives import LossBatch, Outputs
from training.objectives._columns import advantages_of, log_ratio_base, masked, mean_of, new_logprobs
from training.objectives._surrogate import Clip, clipped


def truncated_importance(
    outputs: Outputs, batch: LossBatch, *,
    cap: float = 2.0, level: Literal["token", "sequence"] = "token",
    eps_low: float = 0.2, eps_high: float = 0.28, dual_clip: float | None = 3.0,
) -> tuple[torch.Tensor, dict[str, float]]:  # fmt: skip
    """stop-gradient min(proximal / behaviour, cap) x the clipped surrogate of each masked token, 0 elsewhere, shape (T,).

    The surrogate is max(-A r, -A clip(r)) with r = new / proximal, as PPO has it; its gradient at r = 1 is the policy gradient's. At level
    `sequence` the weight is the product over the masked tokens of the row, the same on all of them; it depends on how rollouts were cut.

    Args:
        outputs: the model's log-probabilities in nats with gradient, shape (T,).
        batch: mask, `adv_T`, `behaviour` and `proximal` in `logprobs`, and `row_T` for level `sequence`.
        cap: largest weight, above 0.
        level: one weight a `token`, or one a row (`sequence`).
        eps_low, eps_high, dual_clip: of the surrogate.
    Returns:
        The loss, with the surrogate's measurements, `importance_mean`, `importance_max` (before the cap) and `capped_fraction`.
    Raises:
        MethodError: a text-only token, a behaviour or proximal log-probability that is missing or not finite, no advantage, no `row_T`
            where needed, or a parameter out of range.

    Source: truncated importance sampling, Ionides 2008; IMPALA, arXiv 1802.01561, section 4.1. Token level is biased, sequence
    level is not for cap = infinity. Released code: verl's rollout_is clamps the log-ratio to [-20, 20]; some trainers read an unknown
    behaviour log-probability as 0, which is probability 1.
    """
    if not cap > 0 or level not in ("token", "sequence"):
        raise MethodError(f"cap {cap}, level {level!r}; allowed: above 0, and 'token' or 'sequence'")
    clip = Clip(eps_low, eps_high, dual_clip)
    new_T = new_logprobs(outputs, batch)
    proximal_T, behaviour_T = log_ratio_base(batch, "proximal", new_T), log_ratio_base(batch, "behaviour", new_T)
    gap_T = masked((proximal_T - behaviour_T).detach(), batch)
    if level == "sequence":
        if batch.row_T is None:
            raise MethodError("no row_T; allowed: the row of each token at level 'sequence'")
        rows = int(batch.row_T.max()) + 1 if len(batch.row_T) else 0
        gap_T = torch.zeros(rows, dtype=gap_T.dtype, device=gap_T.device).index_add(0, batch.row_T, gap_T)[batch.row_T]
    importance_T = torch.exp(gap_T)
    weight_T = importance_T.clamp(max=cap)
    loss_T, metrics = clipped(torch.exp(new_T - proximal_T), advantages_of(batch, new_T), batch, clip)
    return masked(weight_T * loss_T, batch), metrics | {
        "importance_mean": mean_of(weight_T, batch),
        "importance_max": float(masked(importance_T, batch).max()) if len(importance_T) else 0.0,
        "capped_fraction": mean_of((importance_T > cap).to(new_T.dtype), batch),
    }
