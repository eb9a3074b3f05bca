"""Log-probabilities of the tokens of packed rows, each given what stands before it in its row. Torch; changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ledger.errors import UpdateRefused
from training.optimise.micro_batches import MicroBatch, micro_batch, pack, row_spans, units
from training.view import Bools, Floats, Ints

Precision = Literal["weights", "bfloat16"]
"""`weights` computes in the dtype of the weights; `bfloat16` runs the layers below the output layer under autocast. That is safe for
matrix products: weights, their gradients and the optimiser's state stay as loaded, and normalisations and softmax stay in float32. The
output layer is not autocast, because rounding a logit of 16 to bfloat16 moves its log-probability by up to 0.06 nats, and so the ratio by 6 %."""
LOGITS_AT_ONCE = 2**24
"""Above so many logits (64 MiB in float32) they are computed in parts, and again in the backward pass, instead of kept."""


class Scorer(nn.Module):
    """A causal language model that says what it thinks of given tokens at given places alone.

    The output layer sees only places whose next token is asked for. Models that change their logits after the output layer
    (soft-capping, scaling) are noticed by a trial on two tokens and run whole; `split` says which it is.

    Args:
        model: in the style of Hugging Face, also wrapped by peft: `model(input_ids=…)` gives `.logits`, or a tensor.
        precision: of the computation.
        temperature: logits are divided by it, as the engine that sampled did.
    """

    def __init__(self, model: nn.Module, *, precision: Precision = "weights", temperature: float = 1.0) -> None:
        super().__init__()
        self.model = model
        self.precision = precision
        self.temperature = temperature
        self.split = self._same_in_parts()

    def forward(self, ids_QW: Tensor, place_N: Tensor, next_N: Tensor, *, entropy: bool = False) -> tuple[Tensor, Tensor | None]:
        """Log-probability of `next_N` after each place of the padded rows, and the entropy there (without gradient), in nats.

        Float32, or float64 for a model in float64.

        Args:
            ids_QW: rows padded on the right.
            place_N: places in `ids_QW` read row after row.
            next_N: token ids.
            entropy: whether it is asked for.
        """
        with torch.autocast(ids_QW.device.type, dtype=torch.bfloat16, enabled=self.precision == "bfloat16"):
            hidden = (self._hidden(ids_QW) if self.split else self._logits(ids_QW)).flatten(0, 1)[place_N]
        head = self._head() if self.split else nn.Identity()
        vocabulary = int(head.weight.shape[0]) if isinstance(head, nn.Linear) else int(hidden.shape[-1])
        at_once = max(1, LOGITS_AT_ONCE // vocabulary)
        if len(next_N) <= at_once:
            parts = [self._picked(head, hidden, next_N, entropy)]
        else:
            cuts = zip(hidden.split(at_once), next_N.split(at_once), strict=True)
            parts = [
                checkpoint(self._picked, head, part, ids, entropy, use_reentrant=False, preserve_rng_state=False) for part, ids in cuts
            ]
        logprob_N = torch.cat([logprob for logprob, _ in parts])
        return logprob_N, torch.cat([part for _, part in parts if part is not None]) if entropy else None

    def _picked(self, head: nn.Module, hidden_NH: Tensor, next_N: Tensor, entropy: bool) -> tuple[Tensor, Tensor | None]:
        weight = getattr(head, "weight", None)
        logits = head(hidden_NH if weight is None else hidden_NH.to(weight.dtype))
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self.temperature != 1.0:
            logits = logits / self.temperature
        logprob_N = -nn.functional.cross_entropy(logits, next_N, reduction="none")
        if not entropy:
            return logprob_N, None
        with torch.no_grad():
            return logprob_N, torch.special.entr(logits.softmax(-1)).sum(-1)

    def _base(self) -> Any:
        return self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model

    def _head(self) -> nn.Module:
        head: nn.Module = self._base().get_output_embeddings()
        return head

    def _hidden(self, ids_QW: Tensor) -> Tensor:
        out = self._base().get_decoder()(input_ids=ids_QW, use_cache=False)
        hidden: Tensor = out if isinstance(out, Tensor) else out.last_hidden_state
        return hidden

    def _logits(self, ids_QW: Tensor) -> Tensor:
        out = self.model(input_ids=ids_QW)
        logits: Tensor = out if isinstance(out, Tensor) else out.logits
        return logits

    def _same_in_parts(self) -> bool:
        base = self._base()
        if not (hasattr(base, "get_decoder") and hasattr(base, "get_output_embeddings")) or base.get_output_embeddings() is None:
            return False
        with evaluating(self.model), torch.no_grad():
            ids = torch.tensor([[1, 2]], device=next(self.model.parameters()).device)
            whole, parts = self._logits(ids), self._head()(self._hidden(ids))
        return torch.allclose(whole.float(), parts.float(), rtol=1e-3, atol=1e-3)


@dataclass(frozen=True, eq=False)
class TokenScores:
    """What a model says of the tokens of a batch; float64 columns along T, NaN where not asked for or where a row begins.

    Attributes:
        logprob_T: nats.
        entropy_T: of the distribution that the token was taken from, nats; None where not asked for.
        padding: share of the places in the padded rows that held no token.
    """

    logprob_T: Floats
    entropy_T: Floats | None
    padding: float


def scorer_of(model: nn.Module | Scorer, *, precision: Precision = "weights", temperature: float = 1.0) -> Scorer:
    """The model as a scorer; one that is given is given back."""
    return model if isinstance(model, Scorer) else Scorer(model, precision=precision, temperature=temperature)


def score_micro_batch(scorer: Scorer, micro: MicroBatch, wanted_T: Bools, *, entropy: bool = False) -> tuple[Tensor, Tensor | None]:
    """Log-probability (and entropy) along the micro-batch's T, with gradient where the model has one; 0 where not wanted or first in its row."""
    device = next(scorer.parameters()).device
    at = micro.predicted(wanted_T)
    place = micro.place_T[at]
    ids_QW = torch.from_numpy(micro.ids_QW).to(device)
    at_N, place_N = torch.from_numpy(at).to(device), torch.from_numpy(place).to(device)
    logprob_N, entropy_N = scorer(ids_QW, place_N - 1, ids_QW.flatten()[place_N], entropy=entropy)
    blank = logprob_N.new_zeros(len(wanted_T))
    return blank.index_copy(0, at_N, logprob_N), None if entropy_N is None else blank.index_copy(0, at_N, entropy_N)


def token_scores(
    model: nn.Module | Scorer,
    id_T: NDArray[np.int32],
    row_T: Ints,
    *,
    micro_tokens: int,
    wanted_T: Bools | None = None,
    entropy: bool = False,
) -> TokenScores:
    """Log-probabilities of the tokens of rows that stand one after another, without gradient and without dropout.

    Args:
        micro_tokens: places in one forward pass, padding included.
        wanted_T: tokens whose score is asked for; all by default. Rows without one are not run.

    Raises:
        UpdateRefused: rows are not numbered as they must be.
    """
    scorer = scorer_of(model)
    start_Q, length_Q = row_spans(row_T, int(row_T[-1]) + 1 if len(row_T) else 0)
    wanted = np.ones(len(id_T), dtype=np.bool_) if wanted_T is None else wanted_T
    if wanted.shape != id_T.shape or id_T.shape != row_T.shape:
        raise UpdateRefused(f"columns along T have shapes {id_T.shape}, {row_T.shape}, {wanted.shape}; allowed: one shape")
    logprob_T = np.full(len(id_T), np.nan)
    entropy_T = np.full(len(id_T), np.nan) if entropy else None
    places = tokens = 0
    with evaluating(scorer), torch.no_grad():
        for rows in pack(units(np.unique(row_T[wanted])), length_Q, micro_tokens=micro_tokens):
            micro = micro_batch(rows, id_T, start_Q, length_Q)
            asked = wanted[micro.token_T]
            at = micro.predicted(asked)
            new, spread = score_micro_batch(scorer, micro, asked, entropy=entropy)
            logprob_T[micro.token_T[at]] = new.double().cpu().numpy()[at]
            if entropy_T is not None and spread is not None:
                entropy_T[micro.token_T[at]] = spread.double().cpu().numpy()[at]
            places, tokens = places + micro.ids_QW.size, tokens + len(micro.token_T)
    return TokenScores(logprob_T, entropy_T, 1 - tokens / places if places else 0.0)


@dataclass(frozen=True)
class Agreement:
    """How far two columns of log-probabilities of the same tokens are apart, in nats; over the tokens that both know.

    Attributes:
        mean, max: of the absolute difference; 0 without a token.
        tokens: compared.
        missing: tokens that one of both does not know.
    """

    mean: float
    max: float
    tokens: int
    missing: int


def agreement(a_T: Floats, b_T: Floats) -> Agreement:
    """How far apart two columns of log-probabilities are, such as the engine's and the trainer's.

    Raises:
        UpdateRefused: the columns differ in shape.
    """
    if a_T.shape != b_T.shape:
        raise UpdateRefused(f"columns have shapes {a_T.shape} and {b_T.shape}; allowed: one shape")
    gap = np.abs(np.asarray(a_T, dtype=np.float64) - np.asarray(b_T, dtype=np.float64))
    known = gap[~np.isnan(gap)]
    if not len(known):
        return Agreement(0.0, 0.0, 0, len(gap))
    return Agreement(float(known.mean()), float(known.max()), len(known), len(gap) - len(known))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model without dropout for as long as the block runs."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Torch on so many threads for as long as the block runs; sums then repeat bit for bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
