"""The clipped surrogate of PPO along tokens. Pure."""

from dataclasses import dataclass

import torch

from ledger.errors import MethodError
from training.objectives import LossBatch
from training.objectives._columns import mean_of


@dataclass(frozen=True)
class Clip:
    """Bounds of the ratio: [1 - low, 1 + high], and dual x advantage for negative advantages; None leaves that bound out.

    Raises:
        MethodError: low is outside [0, 1], high is negative, or dual is not above 1.
    """

    low: float
    high: float
    dual: float | None

    def __post_init__(self) -> None:
        if not (0 <= self.low <= 1 and self.high >= 0 and (self.dual is None or self.dual > 1)):
            raise MethodError(
                f"eps_low {self.low}, eps_high {self.high}, dual_clip {self.dual}; allowed: [0, 1], at least 0, and above 1 or None"
            )


def clipped(ratio_T: torch.Tensor, adv_T: torch.Tensor, batch: LossBatch, clip: Clip) -> tuple[torch.Tensor, dict[str, float]]:
    """max(-A r, -A clip(r)), at most -A x dual where A < 0; with the share of tokens at which each bound holds the gradient back."""
    plain_T, bounded_T = -adv_T * ratio_T, -adv_T * ratio_T.clamp(1 - clip.low, 1 + clip.high)
    loss_T = torch.maximum(plain_T, bounded_T)
    metrics = {
        "tokens": float(batch.mask_T.sum()),
        "clip_fraction": mean_of((bounded_T > plain_T).to(ratio_T.dtype), batch),
        "ratio_mean": mean_of(ratio_T, batch),
        "ratio_max": float(torch.where(batch.mask_T, ratio_T.detach(), 0.0).max()) if len(ratio_T) else 0.0,
    }
    if clip.dual is not None:
        limit_T = -adv_T * clip.dual
        beyond_T = (adv_T < 0) & (loss_T > limit_T)
        metrics["dual_clip_fraction"] = mean_of(beyond_T.to(ratio_T.dtype), batch)
        loss_T = torch.where(beyond_T, limit_T, loss_T)
    return loss_T, metrics
