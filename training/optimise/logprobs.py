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
from training.models.causal_lm import CausalLM, Foreign, Grid
from training.optimise.micro_batches import MicroBatch, micro_batch, pack, row_spans, units
from training.view import Bools, Floats, Ints

Precision = Literal["weights", "bfloat16"]
"""`weights` computes in the dtype of the weights; `bfloat16` runs matrix products and attention under autocast. That is safe for the
gradient: weights, their gradients and the optimiser's state stay as loaded, normalisations, log-softmax and every sum of the loss stay in
float32. Ratios against an engine in another precision are not safe, so every update measures the gap to the behaviour policy."""
LOGITS_AT_ONCE = 2**24
"""Above so many logits (64 MiB in float32) they are computed in parts, and again in the backward pass, instead of kept."""


class Scorer(nn.Module):
    """A causal language model that says what it thinks of given tokens of packed rows, and of no others.

    The output layer sees only the places whose next token is asked for. Models that change their logits after the output layer
    (soft-capping, scaling) are noticed by a trial on two tokens and run whole; `way` says which it is.

    Args:
        model: one that takes packed rows (`training.models.causal_lm.RowModel`), or one in the style of Hugging Face, where
            `model(input_ids=...)` gives `.logits`; also wrapped by peft.
        precision: of the computation.
        temperature: logits are divided by it, as the engine that sampled did.
        logits_at_once: see `LOGITS_AT_ONCE`.
    """

    def __init__(
        self, model: nn.Module, *, precision: Precision = "weights", temperature: float = 1.0, logits_at_once: int = LOGITS_AT_ONCE
    ) -> None:
        super().__init__()
        self.model = model.inner if isinstance(model, Foreign) else model
        self.precision = precision
        self.temperature = temperature
        self.logits_at_once = logits_at_once
        self.way: Literal["rows", "split", "whole"] = "rows" if isinstance(self._base(), CausalLM) else self._trial()

    def forward(self, ids_T: Tensor, row_T: Tensor, at_N: Tensor, *, entropy: bool = False) -> tuple[Tensor, Tensor | None]:
        """Log-probability of each token `at_N`, and the entropy (without gradient) of what it was taken from, in nats.

        Float32, or float64 for a model in float64.

        Args:
            ids_T, row_T: packed rows.
            at_N: indices along T of tokens that are not the first of their row.
            entropy: whether it is asked for.
        """
        with torch.autocast(ids_T.device.type, dtype=torch.bfloat16, enabled=self.precision == "bfloat16"):
            hidden = self._before_output(ids_T, row_T, at_N - 1)
        head = self._base().get_output_embeddings() if self.way == "split" else nn.Identity()
        at_once = max(1, self.logits_at_once // int(getattr(head, "out_features", hidden.shape[-1])))
        next_N = ids_T[at_N]
        if len(at_N) <= at_once:
            return self._picked(head, hidden, next_N, entropy)
        cuts = zip(torch.split(hidden, at_once), torch.split(next_N, at_once), strict=True)
        parts = [checkpoint(self._picked, head, part, ids, entropy, use_reentrant=False, preserve_rng_state=False) for part, ids in cuts]
        return torch.cat([logprob for logprob, _ in parts]), torch.cat([spread for _, spread in parts]) if entropy else None

    def _picked(self, head: nn.Module, hidden: Tensor, next_N: Tensor, entropy: bool) -> tuple[Tensor, Tensor | None]:
        logits: Tensor = head(hidden.to(getattr(getattr(head, "weight", hidden), "dtype", hidden.dtype)))
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self.temperature != 1.0:
            logits = logits / self.temperature
        logprob_N = -nn.functional.cross_entropy(logits, next_N, reduction="none")
        if not entropy:
            return logprob_N, None
        with torch.no_grad():
            return logprob_N, torch.special.entr(logits.softmax(-1)).sum(-1)

    def _base(self) -> Any:
        model: Any = self.model
        return model.get_base_model() if hasattr(model, "get_base_model") else model

    def _before_output(self, ids_T: Tensor, row_T: Tensor, at_N: Tensor) -> Tensor:
        """Logits at the places, or what the output layer makes them from."""
        if self.way == "rows":
            logits: Tensor = self.model(ids_T, row_T, at_N)
            return logits
        # Padding stands behind a row's own tokens, so the causal mask alone keeps it out of sight.
        grid = Grid(row_T)
        out = (self._base().get_decoder() if self.way == "split" else self.model)(input_ids=grid.spread(ids_T), use_cache=False)
        rectangle: Tensor = out[0]
        return rectangle.flatten(0, 1).index_select(0, grid.place_T[at_N])

    def _trial(self) -> Literal["split", "whole"]:
        base = self._base()
        if not hasattr(base, "get_decoder") or base.get_output_embeddings() is None:
            return "whole"
        with evaluating(self.model), torch.no_grad():
            ids = torch.tensor([[1, 2]], device=next(self.model.parameters()).device)
            whole = self.model(input_ids=ids, use_cache=False)[0]
            parts = base.get_output_embeddings()(base.get_decoder()(input_ids=ids, use_cache=False)[0])
        return "split" if torch.allclose(whole.float(), parts.float(), rtol=1e-3, atol=1e-3) else "whole"


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


def unwrapped(model: nn.Module | Scorer) -> nn.Module:
    """The model whose weights have their own names."""
    return model.model if isinstance(model, Scorer) else model


def score_micro_batch(
    scorer: Scorer, micro: MicroBatch, id_T: NDArray[np.int32], wanted_T: Bools, *, entropy: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Log-probability (and entropy) along the micro-batch's T, with gradient; 0 where not wanted or first in its row.

    Args:
        id_T: of the batch.
        wanted_T: along the micro-batch's T.
    """
    device = next(scorer.parameters()).device
    at_N = torch.from_numpy(micro.predicted(wanted_T)).to(device)
    ids_T = torch.from_numpy(id_T[micro.token_T].astype(np.int64)).to(device)
    logprob_N, entropy_N = scorer(ids_T, torch.from_numpy(micro.row_T).to(device), at_N, entropy=entropy)
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
            micro = micro_batch(rows, start_Q, length_Q)
            asked = wanted[micro.token_T]
            at = micro.predicted(asked)
            new, spread = score_micro_batch(scorer, micro, id_T, asked, entropy=entropy)
            logprob_T[micro.token_T[at]] = new.double().cpu().numpy()[at]
            if entropy_T is not None and spread is not None:
                entropy_T[micro.token_T[at]] = spread.double().cpu().numpy()[at]
            places, tokens = places + micro.places, tokens + len(micro.token_T)
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
