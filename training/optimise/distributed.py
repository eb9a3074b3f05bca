"""One update over several processes started by torchrun: rows dealt by tokens, gradients summed. Talks to the other processes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from ledger.errors import ProcessLost, TallyError, UpdateRefused
from training.optimise.gradient import accumulate, check, grad_norm, planned, with_column
from training.optimise.logprobs import Scorer, scorer_of, unwrapped
from training.optimise.measured import Measured, Sums
from training.optimise.micro_batches import row_spans, shares, units
from training.update_batch import UpdateBatch
from training.view import Ints

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this is."""

    rank: int = 0
    world: int = 1


@contextmanager
def joined(*, backend: str = "gloo", timeout_s: float = 600.0) -> Iterator[Ranks]:
    """This process among those that torchrun started, for as long as the block runs; alone where it was started otherwise.

    Args:
        backend: `gloo` for CPUs, `nccl` for GPUs.
        timeout_s: how long one process waits for the others in each exchange, in seconds.
    """
    if "WORLD_SIZE" not in os.environ:
        yield Ranks()
        return
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


def sharded(model: nn.Module | Scorer, ranks: Ranks) -> Scorer:
    """The model with its weights, gradients and optimiser state divided among the processes, layer by layer.

    Make the optimiser after this call. Gradients are summed over the processes, where FSDP by itself would average them.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    scorer = scorer_of(model)
    mesh = init_device_mesh(next(scorer.parameters()).device.type, (ranks.world,))
    for layers in [module for module in scorer.modules() if isinstance(module, nn.ModuleList)]:
        for layer in layers:
            fully_shard(layer, mesh=mesh)
    fully_shard(scorer, mesh=mesh)
    for module in scorer.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return scorer


def sharded_gradient(
    model: nn.Module | Scorer,
    batch: UpdateBatch,
    ranks: Ranks,
    *,
    micro_tokens: int,
    ref: nn.Module | Scorer | None = None,
    entropy: bool = False,
) -> Measured:
    """What all processes measured together; on each of them the gradients are those of the whole batch (or its share, when sharded).

    Every process has the whole batch and runs its share of the rows. The weights carry the normalisation, so gradients are summed.

    Args:
        model: the same on every process, or one of `sharded`.
        batch, micro_tokens, ref, entropy: as `update_gradient` takes them.

    Raises:
        UpdateRefused: the processes have different batches, or one of them refuses its share; then all of them do, and no gradient is left.
    """
    from torch.distributed.fsdp import FSDPModule

    scorer = scorer_of(model)
    check(batch)
    agree(batch_digest(batch), ranks, what="batches")
    plan = planned(batch, micro_tokens=micro_tokens)
    rows = np.sort(np.concatenate(plan)) if plan else np.zeros(0, dtype=np.int64)
    dealt = shares(units(rows, batch.pairs_P2), row_spans(batch.row_T, batch.rows)[1], ranks.world)
    parts = [part(batch, np.sort(np.concatenate(mine)) if mine else rows[:0]) for mine in dealt]
    mine = parts[ranks.rank]
    if ref is not None and "ref" not in batch.logprobs:
        mine = with_column(mine, "ref", ref, micro_tokens=micro_tokens)
    whole = isinstance(scorer, FSDPModule)
    passes = max(len(planned(each, micro_tokens=micro_tokens)) for each in parts) if whole else 0
    scorer.zero_grad()
    sums, refusal = Sums(), ""
    try:
        sums = accumulate(scorer, mine, micro_tokens=micro_tokens, entropy=entropy, passes=passes)
    except TallyError as error:
        if whole:
            # The others wait inside a pass of the model, where no message reaches them; they end by their time-out.
            raise
        refusal = f"process {ranks.rank}: {error}"
    refusals = [told for told in gathered(refusal, ranks) if told]
    if refusals:
        scorer.zero_grad()
        raise UpdateRefused("; ".join(refusals))
    if not whole and ranks.world > 1:
        _sum_gradients(scorer)
    total = Sums()
    for each in gathered(sums, ranks):
        total.merge(each)
    total.counters["rows_without_weight"] += batch.rows - len(rows)
    return total.measured(float(grad_norm(scorer)))


def part(batch: UpdateBatch, rows_Q: Ints) -> UpdateBatch:
    """The batch of these rows alone, with the weights that they have in the whole.

    Args:
        rows_Q: in ascending order; both rows of a pair or neither.
    """
    keep_T = np.isin(batch.row_T, rows_Q)
    inside = np.isin(batch.pairs_P2, rows_Q).all(axis=1)
    return replace(
        batch,
        rollout_id_Q=tuple(batch.rollout_id_Q[row] for row in rows_Q),
        row_T=np.searchsorted(rows_Q, batch.row_T[keep_T]),
        id_T=batch.id_T[keep_T],
        adv_T=batch.adv_T[keep_T],
        logprobs={name: column[keep_T] for name, column in batch.logprobs.items()},
        terms=tuple(replace(term, weight_T=term.weight_T[keep_T], mask_T=term.mask_T[keep_T]) for term in batch.terms),
        text_only_Q=batch.text_only_Q[rows_Q],
        pairs_P2=np.searchsorted(rows_Q, batch.pairs_P2[inside]),
    )


def batch_digest(batch: UpdateBatch) -> str:
    """Hex SHA-256 over all that the gradient is computed from: tokens, rows, columns, weights, masks, methods and their factors."""
    running = hashlib.sha256()
    arrays: dict[str, NDArray[Any]] = {
        "row": batch.row_T, "id": batch.id_T, "adv": batch.adv_T, "text_only": batch.text_only_Q, "pairs": batch.pairs_P2,
        **{f"logprobs:{name}": column for name, column in sorted(batch.logprobs.items())},
        **{f"weight:{number}": term.weight_T for number, term in enumerate(batch.terms)},
        **{f"mask:{number}": term.mask_T for number, term in enumerate(batch.terms)},
    }  # fmt: skip
    for name, array in arrays.items():
        running.update(f"{name} {array.dtype} {array.shape}\n".encode() + np.ascontiguousarray(array).tobytes())
    for term in batch.terms:
        running.update(f"{term.objective.ref.method_id} {term.coefficient!r}\n".encode())
    running.update("\n".join(batch.rollout_id_Q).encode())
    return running.hexdigest()


def model_digest(model: nn.Module) -> str:
    """Hex SHA-256 over the names and bytes of all weights; sharded ones are put together, so then all processes must call it."""
    running = hashlib.sha256()
    for name, weight in sorted(unwrapped(model).state_dict().items()):
        whole: Tensor = weight.full_tensor() if hasattr(weight, "full_tensor") else weight
        raw = whole.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        running.update(f"{name} {whole.dtype} {tuple(whole.shape)}\n".encode() + raw)
    return running.hexdigest()


def agree(digest: str, ranks: Ranks, *, what: str) -> str:
    """The digest, which all processes have.

    Raises:
        UpdateRefused: they have different ones; on every process.
    """
    told = gathered(digest, ranks)
    if len(set(told)) > 1:
        listed = ", ".join(f"{rank}: {each[:12]}" for rank, each in enumerate(told))
        raise UpdateRefused(f"the processes have different {what} ({listed}); allowed: one digest on all")
    return digest


def gathered(mine: T, ranks: Ranks) -> list[T]:
    """What each process gave, by rank."""
    if ranks.world == 1:
        return [mine]
    told = [mine] * ranks.world
    with reaching():
        dist.all_gather_object(told, mine)
    return told


@contextmanager
def reaching() -> Iterator[None]:
    """Nothing; an exchange with the other processes goes in the block.

    Raises:
        ProcessLost: one of them ended, or did not answer in time.
    """
    try:
        yield
    except RuntimeError as error:
        raise ProcessLost(f"another process of the update ended or did not answer in time; its own message says why ({error})") from error


def _sum_gradients(model: nn.Module) -> None:
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    for dtype in sorted({weight.dtype for weight in weights}, key=str):
        own = [weight for weight in weights if weight.dtype == dtype]
        joint = torch.cat([(torch.zeros_like(weight) if weight.grad is None else weight.grad).flatten() for weight in own])
        with reaching():
            dist.all_reduce(joint, op=dist.ReduceOp.SUM)
        for weight, grad in zip(own, torch.split(joint, [weight.numel() for weight in own]), strict=True):
            weight.grad = grad.view_as(weight).clone()
