"""The clipped surrogate of PPO, with bounds of their own upwards and downwards and a dual clip."""

import torch

from training.objectives import LossBatch, Outputs
from training.objectives._columns import advantages_of, log_ratio_base, masked, mean_of, new_logprobs
from training.objectives._surrogate import Clip, clipped


def ppo_clip(
    outputs: Outputs, batch: LossBatch, *, eps_low: float = 0.2, eps_high: float = 0.28, dual_clip: float | None = 3.0
) -> tuple[torch.Tensor, dict[str, float]]:
    """max(-A r, -A clip(r, 1 - eps_low, 1 + eps_high)) of each masked token, 0 elsewhere, shape (T,), in units of the advantage.

    r = new / proximal, the policy now over the policy at the start of the update. Where A < 0 the loss is at most -A x dual_clip.

    Args:
        outputs: the model's log-probabilities in nats with gradient, shape (T,).
        batch: mask, `adv_T`, and `proximal` in `logprobs`.
        eps_low, eps_high: in [0, 1] and at least 0.
        dual_clip: above 1, or None for none.
    Returns:
        The loss, with `clip_fraction`, `dual_clip_fraction`, `ratio_mean`, `ratio_max`, `approx_kl` (k3 of proximal to new, nats),
            `tokens`.
    Raises:
        MethodError: a text-only token, a proximal log-probability that is missing or not finite, no advantage, or a parameter out of range.

    Source: PPO, arXiv 1707.06347, equation 7; bounds apart: DAPO, arXiv 2503.14476, section 3.1; dual clip: arXiv 1912.09729.
    verl clamps log r to [-20, 20] first and by default bounds both sides by 0.2; many trainers put the engine's log-probabilities in the
    place of `proximal`, so that the clip also cuts the engine's numerical gap.
    """
    clip = Clip(eps_low, eps_high, dual_clip)
    new_T = new_logprobs(outputs, batch)
    log_ratio_T = new_T - log_ratio_base(batch, "proximal", new_T)
    ratio_T = torch.exp(log_ratio_T)
    loss_T, metrics = clipped(ratio_T, advantages_of(batch, new_T), batch, clip)
    return masked(loss_T, batch), metrics | {"approx_kl": mean_of(torch.expm1(log_ratio_T) - log_ratio_T, batch)}
