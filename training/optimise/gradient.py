"""The gradient of one update: Σ over terms of coefficient × Σ weight × loss. Sets the gradients of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from ledger.errors import TallyError, UpdateRefused
from training.objectives import LossBatch, Outputs
from training.optimise.logprobs import Scorer, score_micro_batch, scorer_of, token_scores
from training.optimise.measured import Measured, Sums
from training.optimise.micro_batches import MicroBatch, micro_batch, pack, row_spans, units
from training.update_batch import Term, UpdateBatch
from training.view import Bools, Floats, Ints


def update_gradient(
    model: nn.Module | Scorer,
    batch: UpdateBatch,
    *,
    micro_tokens: int,
    ref: nn.Module | Scorer | None = None,
    entropy: bool = False,
) -> Measured:
    """What was measured; the gradients of the model's trainable weights are those of this batch.

    The weights are the batch's and are never divided by anything that depends on the micro-batches, so cutting the rows otherwise changes
    the gradient by rounding alone. Rows without any weight are not run at all.

    A column `proximal` that the batch does not have is the model's own answer in this very pass, which is what it is at the start of an
    update; an update of several optimiser steps over one batch takes it first, by `with_column`.

    Args:
        micro_tokens: places in one forward pass, padding included; a row or pair that is longer goes alone and is counted.
        ref: frozen model for the column `ref`, where a term needs it and the batch does not have it.
        entropy: whether the mean entropy is measured.

    Raises:
        UpdateRefused: the batch does not hold together, or a loss is not finite; no gradient is left.
        MethodError: a term refuses the batch.
    """
    scorer = scorer_of(model)
    check(batch)
    if ref is not None and "ref" not in batch.logprobs:
        batch = with_column(batch, "ref", ref, micro_tokens=micro_tokens)
    scorer.zero_grad()
    try:
        sums = accumulate(scorer, batch, micro_tokens=micro_tokens, entropy=entropy)
    except TallyError:
        scorer.zero_grad()
        raise
    return sums.measured(float(grad_norm(scorer)))


def with_column(batch: UpdateBatch, name: str, model: nn.Module | Scorer, *, micro_tokens: int) -> UpdateBatch:
    """The batch with what `model` says now as a column of log-probabilities: on the tokens that some term covers in the rows that an
    update runs, and NaN elsewhere."""
    run_Q = np.zeros(batch.rows, dtype=np.bool_)
    for rows in planned(batch, micro_tokens=micro_tokens):
        run_Q[rows] = True
    wanted_T = covered(batch) & run_Q[batch.row_T]
    scores = token_scores(model, batch.id_T, batch.row_T, micro_tokens=micro_tokens, wanted_T=wanted_T)
    return replace(batch, logprobs={**batch.logprobs, name: scores.logprob_T})


def accumulate(scorer: Scorer, batch: UpdateBatch, *, micro_tokens: int, entropy: bool = False, passes: int = 0) -> Sums:
    """Sums over the micro-batches of a checked batch, whose gradients are added to those of the model.

    Args:
        passes: forward passes to come up to with passes that weigh nothing, because other processes wait for each of them.
    """
    start_Q, length_Q = row_spans(batch.row_T, batch.rows)
    wanted_T, sums = covered(batch), Sums()
    plan = planned(batch, micro_tokens=micro_tokens)
    used = int(sum(len(rows) for rows in plan))
    sums.counters["rows_without_weight"] += batch.rows - used
    for rows in plan:
        micro = micro_batch(rows, start_Q, length_Q)
        sums.counters["micro_batches_over_budget"] += int(micro.places > micro_tokens)
        _one(scorer, batch, micro, wanted_T[micro.token_T], sums, entropy=entropy).backward()  # type: ignore[no-untyped-call]
    device = next(scorer.parameters()).device
    nothing = torch.zeros(2, dtype=torch.int64, device=device)
    for _ in range(passes - len(plan)):
        (scorer(nothing, nothing, nothing[:1] + 1)[0].sum() * 0).backward()
        sums.counters["idle_passes"] += 1
    return sums


def planned(batch: UpdateBatch, *, micro_tokens: int) -> list[Ints]:
    """Rows of each forward pass: those with a weight, longest first, both rows of a pair together."""
    length_Q = row_spans(batch.row_T, batch.rows)[1]
    weighted_T = np.zeros(len(batch.id_T), dtype=np.bool_)
    for term in batch.terms:
        weighted_T |= term.mask_T & (term.weight_T != 0)
    rows = np.union1d(np.unique(batch.row_T[weighted_T]), _partners(batch.pairs_P2, np.unique(batch.row_T[weighted_T])))
    return pack(units(rows, batch.pairs_P2), length_Q, micro_tokens=micro_tokens)


def covered(batch: UpdateBatch) -> Bools:
    """Tokens that some term covers."""
    return np.logical_or.reduce([term.mask_T for term in batch.terms]) if batch.terms else np.zeros(len(batch.id_T), dtype=np.bool_)


def check(batch: UpdateBatch) -> None:
    """Nothing.

    Raises:
        UpdateRefused: columns differ in length, a weight is not finite or lies outside of its mask, a pair names a row that is not there.
    """
    tokens = len(batch.id_T)
    row_spans(batch.row_T, batch.rows)
    columns: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]] = {"row_T": batch.row_T, "adv_T": batch.adv_T, **batch.logprobs}
    for number, term in enumerate(batch.terms):
        columns |= {f"weight_T of term {number}": term.weight_T, f"mask_T of term {number}": term.mask_T}
        if not np.isfinite(term.weight_T).all() or (term.weight_T[~term.mask_T] != 0).any():
            raise UpdateRefused(f"term {number} has weights that are not finite or lie outside of its mask; allowed: finite, 0 outside")
    for name, column in columns.items():
        if column.shape != (tokens,):
            raise UpdateRefused(f"{name} has shape {column.shape}; allowed: ({tokens},)")
    if len(batch.text_only_Q) != batch.rows or not batch.terms:
        raise UpdateRefused(
            f"{len(batch.text_only_Q)} text-only marks for {batch.rows} rows, {len(batch.terms)} terms; allowed: one a row, ≥ 1 term"
        )
    if batch.pairs_P2.size and (batch.pairs_P2.min() < 0 or batch.pairs_P2.max() >= batch.rows):
        raise UpdateRefused(f"pairs name rows {batch.pairs_P2.min()} to {batch.pairs_P2.max()}; allowed: 0 to {batch.rows - 1}")


def grad_norm(model: nn.Module) -> Tensor:
    """Euclidean norm over the gradients of the trainable weights, of whole tensors where they are sharded."""
    grads = [weight.grad for weight in model.parameters() if weight.grad is not None]
    total = torch.nn.utils.get_total_norm(grads) if grads else torch.zeros(())
    return total.full_tensor() if hasattr(total, "full_tensor") else total


def term_names(terms: Sequence[Term]) -> list[str]:
    """A name for each term: its objective's, numbered from the second use on."""
    seen: Counter[str] = Counter()
    names = []
    for term in terms:
        name = term.objective.ref.name
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}.{seen[name]}")
    return names


def _one(scorer: Scorer, batch: UpdateBatch, micro: MicroBatch, wanted_T: Bools, sums: Sums, *, entropy: bool) -> Tensor:
    """The loss of one micro-batch."""
    new_T, entropy_T = score_micro_batch(scorer, micro, batch.id_T, wanted_T, entropy=entropy)
    device, dtype = new_T.device, new_T.dtype

    def taken(column: Floats) -> Tensor:
        return torch.from_numpy(column[micro.token_T]).to(device, dtype)

    columns = {name: taken(column) for name, column in batch.logprobs.items()}
    if "proximal" not in columns:
        columns["proximal"] = new_T.detach()
    shared = LossBatch(
        mask_T=torch.from_numpy(wanted_T).to(device),
        adv_T=taken(batch.adv_T),
        logprobs=columns,
        pairs_P2=torch.from_numpy(_local_pairs(batch.pairs_P2, micro.rows_Q)).to(device),
        row_T=torch.from_numpy(micro.row_T).to(device),
        text_only_T=torch.from_numpy(batch.text_only_Q[micro.rows_Q][micro.row_T]).to(device),
    )
    total = new_T.new_zeros(())
    for name, term in zip(term_names(batch.terms), batch.terms, strict=True):
        mask_T = torch.from_numpy(term.mask_T[micro.token_T]).to(device)
        if not bool(mask_T.any()):
            continue
        loss_E, metrics = term.objective.call(Outputs(new_T), replace(shared, mask_T=mask_T))
        weight_E = taken(term.weight_T)
        if "pairs" in metrics and shared.pairs_P2 is not None:
            weight_E = _pair_weights(weight_E, shared.pairs_P2, micro.row_T, len(micro.rows_Q))
        if loss_E.shape != weight_E.shape:
            raise UpdateRefused(
                f"term {name} gives {tuple(loss_E.shape)} losses for {tuple(weight_E.shape)} weights; allowed: one a token or pair"
            )
        loss = term.coefficient * (weight_E * loss_E).sum()
        if not bool(torch.isfinite(loss)):
            rollouts = ", ".join(sorted({batch.rollout_id_Q[row] for row in micro.rows_Q})[:3])
            raise UpdateRefused(f"term {name} has loss {float(loss.detach())} over rows of rollouts {rollouts}; allowed: a finite loss")
        sums.term(name, float(loss.detach()), metrics)
        total = total + loss
    _count(batch, micro, wanted_T, sums, new_T=new_T, entropy_T=entropy_T)
    return total


def _count(batch: UpdateBatch, micro: MicroBatch, wanted_T: Bools, sums: Sums, *, new_T: Tensor, entropy_T: Tensor | None) -> None:
    trained_T = np.logical_or.reduce([(term.weight_T != 0)[micro.token_T] for term in batch.terms])
    at = micro.predicted(wanted_T)
    counts = {"tokens": int(trained_T.sum()), "rows": len(micro.rows_Q), "micro_batches": 1}
    for name, count in {**counts, "places": micro.places, "whole_tokens": len(micro.token_T)}.items():
        sums.counts[name] += count
    sums.counters["first_tokens_without_context"] += int(wanted_T.sum()) - len(at)
    if "proximal" not in batch.logprobs:
        sums.counters["tokens_proximal_is_new"] += len(at)
    if entropy_T is not None:
        sums.sums["entropy"] += float(entropy_T.double().cpu().numpy()[trained_T].sum())
        sums.over["entropy"] += int(trained_T.sum())
    behaviour_T = batch.logprobs.get("behaviour")
    if behaviour_T is not None:
        gap = np.abs(new_T.detach().double().cpu().numpy() - behaviour_T[micro.token_T])[trained_T]
        known = gap[~np.isnan(gap)]
        sums.counters["tokens_without_behaviour"] += len(gap) - len(known)
        sums.sums["gap"] += float(known.sum())
        sums.over["gap"] += len(known)
        sums.maxima["gap_max"] = max(sums.maxima.get("gap_max", 0.0), float(known.max(initial=0.0)))


def _pair_weights(weight_T: Tensor, pairs_P2: Tensor, row_T: Ints, rows: int) -> Tensor:
    """Weight of each pair: a row's weight is the sum over its tokens, and its pairs share it equally, so that the sum stays as declared."""
    weight_Q = weight_T.new_zeros(rows).index_add(0, torch.from_numpy(row_T).to(weight_T.device), weight_T)
    times_Q = torch.bincount(pairs_P2.flatten(), minlength=rows).clamp(min=1)
    return (weight_Q / times_Q)[pairs_P2].sum(-1)


def _partners(pairs_P2: Ints, rows: Ints) -> Ints:
    """Rows of all pairs that a row of `rows` is tied to, directly or through others."""
    found = rows
    while True:
        touched = np.isin(pairs_P2, found).any(axis=1)
        more = np.union1d(found, pairs_P2[touched].ravel())
        if len(more) == len(found):
            return found
        found = more


def _local_pairs(pairs_P2: Ints, rows_Q: Ints) -> Ints:
    """The pairs among these rows, as indices into them."""
    inside = np.isin(pairs_P2, rows_Q).all(axis=1)
    order = np.argsort(rows_Q)
    return order[np.searchsorted(rows_Q[order], pairs_P2[inside])]
