"""Direct preference optimisation over pairs of rows."""

import torch
import torch.nn.functional as F

from ledger.errors import MethodError
from training.objectives import LossBatch, Outputs
from training.objectives._columns import log_ratio_base, masked, new_logprobs


def dpo(outputs: Outputs, batch: LossBatch, *, beta: float = 0.1) -> tuple[torch.Tensor, dict[str, float]]:
    """-log sigmoid(beta x (margin of the preferred row - margin of the rejected row)) of each pair in nats, shape (P,).

    A row's margin is the sum over its masked tokens of log new - log ref.

    Args:
        outputs: the model's log-probabilities in nats with gradient, shape (T,).
        batch: mask, `row_T`, `pairs_P2` (preferred, rejected) and `ref` in `logprobs`.
        beta: above 0.
    Returns:
        The loss, with `accuracy` (share of pairs whose preferred row has the larger margin), `margin` (mean difference in nats) and
            `pairs`.
    Raises:
        MethodError: no pairs or rows, a pair that names a row twice, one that is not there or one without masked tokens, a text-only token,
            a ref log-probability that is missing or not finite, or beta out of range.

    Source: DPO, arXiv 2305.18290, equation 7. TRL's default is the same sum; its length-normalised variants are other losses.
    """
    if not beta > 0:
        raise MethodError(f"beta is {beta}; allowed: above 0")
    new_T = new_logprobs(outputs, batch)
    pairs_P2, row_T = _pairs(batch)
    rows = int(row_T.max()) + 1
    margin_T = masked(new_T - log_ratio_base(batch, "ref", new_T), batch)
    margin_Q = torch.zeros(rows, dtype=new_T.dtype, device=new_T.device).index_add(0, row_T, margin_T)
    gap_P = margin_Q[pairs_P2[:, 0]] - margin_Q[pairs_P2[:, 1]]
    told_P = gap_P.detach()
    return -F.logsigmoid(beta * gap_P), {
        "accuracy": float((told_P > 0).double().mean()), "margin": float(told_P.mean()), "pairs": float(len(told_P))
    }  # fmt: skip


def _pairs(batch: LossBatch) -> tuple[torch.Tensor, torch.Tensor]:
    if batch.pairs_P2 is None or batch.row_T is None or batch.pairs_P2.ndim != 2 or batch.pairs_P2.shape[1] != 2 or not len(batch.pairs_P2):
        have = "none" if batch.pairs_P2 is None else f"of shape {tuple(batch.pairs_P2.shape)}"
        raise MethodError(
            f"pairs: {have}, row_T {'missing' if batch.row_T is None else 'there'}; allowed: (preferred, rejected) rows and row_T"
        )
    pairs_P2, row_T = batch.pairs_P2, batch.row_T
    masked_Q = torch.bincount(row_T[batch.mask_T], minlength=int(row_T.max()) + 1)
    if int(pairs_P2.min()) < 0 or int(pairs_P2.max()) >= len(masked_Q) or bool((pairs_P2[:, 0] == pairs_P2[:, 1]).any()):
        raise MethodError(f"pairs {pairs_P2.tolist()}; allowed: two different rows of 0 to {len(masked_Q) - 1}")
    if bool((masked_Q[pairs_P2] == 0).any()):
        raise MethodError("a row of a pair has no masked tokens; allowed: rows with sampled tokens")
    return pairs_P2, row_T
