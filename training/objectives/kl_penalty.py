"""A penalty on the divergence from another policy, estimated on the sampled tokens (k1, k2, k3)."""

from typing import Literal

import torch

from ledger.errors import MethodError
from training.objectives import LossBatch, Outputs
from training.objectives._columns import log_ratio_base, masked, mean_of, new_logprobs


def kl_penalty(
    outputs: Outputs, batch: LossBatch, *,
    form: Literal["k1", "k2", "k3"] = "k3", gradient: Literal["form", "k2"] = "form",
    against: Literal["ref", "proximal", "behaviour"] = "ref",
) -> tuple[torch.Tensor, dict[str, float]]:  # fmt: skip
    """An estimate of KL(new || against) at each masked token in nats, 0 elsewhere, shape (T,); with d = log against - log new:

    k1 = -d, k2 = d^2 / 2, k3 = exp(d) - 1 - d. As values k1 and k3 are unbiased for tokens that the new policy sampled. As losses they are
    not all gradients of the divergence: that of k1 is zero in expectation and only adds noise, that of k2 is the reverse divergence's, that
    of k3 is the forward one's. `gradient = "k2"` keeps the value of the form and takes the gradient of k2.

    Args:
        outputs: the model's log-probabilities in nats with gradient, shape (T,).
        batch: mask and the column `against` in `logprobs`.
        form: which estimate.
        gradient: of the form itself, or of k2.
        against: `ref`, `proximal` or `behaviour`.
    Returns:
        The loss, with `k1`, `k2` and `k3` (means in nats), `gap_max` (largest |d|) and `tokens`.
    Raises:
        MethodError: a text-only token, a log-probability of `against` that is missing or not finite, or a parameter with another value.

    Source: Schulman 2020, Approximating KL divergence; gradients: arXiv 2506.09477. Released code: verl clamps d to [-20, 20] and k3 to
    [-10, 10]; its `k3+` is form k3 with gradient k2; GRPO's paper has k3 as the loss. Tokens are those of the behaviour policy,
    uncorrected.
    """
    if form not in ("k1", "k2", "k3") or gradient not in ("form", "k2") or against not in ("ref", "proximal", "behaviour"):
        raise MethodError(
            f"form {form!r}, gradient {gradient!r}, against {against!r}; allowed: k1, k2, k3; form, k2; ref, proximal, behaviour"
        )
    new_T = new_logprobs(outputs, batch)
    d_T = log_ratio_base(batch, against, new_T) - new_T
    forms = {"k1": -d_T, "k2": d_T**2 / 2, "k3": torch.expm1(d_T) - d_T}
    loss_T = forms[form]
    if gradient == "k2":
        loss_T = loss_T.detach() + forms["k2"] - forms["k2"].detach()
    metrics = {name: mean_of(value_T, batch) for name, value_T in forms.items()}
    largest = float(masked(d_T.detach().abs(), batch).max()) if len(d_T) else 0.0
    return masked(loss_T, batch), metrics | {"gap_max": largest, "tokens": float(batch.mask_T.sum())}
