"""Processes that torchrun started, which take the optimiser steps of one run together, led by the first. Talks to the other processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from torch import Tensor

from ledger.errors import ProcessLost, TallyError, TrainingBroken
from training.optimise.distributed import Ranks, gathered, joined, reaching
from training.optimise.learner import Learner
from training.train_config import Optimiser, PolicyTable
from training.update_batch import UpdateBatch

_IDLE = timedelta(days=7)
"""Longest time between two orders: a round of rollouts lies between them. Whoever waits ends at once where the leader's process ends."""


@dataclass(frozen=True, eq=False)
class Opening:
    """What the learner of an update is made from, the same on every process; the folders are read by each of them."""

    folder: Path
    policy: PolicyTable
    base: Path
    seed: int
    threads: int
    temperature: float
    optimiser: Optimiser
    total_steps: int
    state: Mapping[str, Tensor] | None

    def learner(self, ranks: Ranks) -> Learner:
        """The policy with its optimiser."""
        made = Learner(
            self.folder, self.policy, base=self.base, seed=self.seed, threads=self.threads, temperature=self.temperature, ranks=ranks
        )
        made.optimise(self.optimiser, total_steps=self.total_steps, state=self.state)
        return made


@dataclass(frozen=True, eq=False)
class Step:
    """One optimiser step, as `Learner.step` takes it."""

    batch: UpdateBatch
    micro_tokens: int
    seed: int


@dataclass(frozen=True)
class Agree:
    """All processes say whether they have the same weights."""


Order = Opening | Step | Agree | None
"""What the leader tells the others to do with it; None: that it is done."""


class Team:
    """The processes that train a run together, or the one that trains it alone.

    The leader alone speaks to the ledger, samples, assembles batches and writes versions. The others do what it orders, which is what needs
    them: they read the weights, take their share of each gradient, and step.
    """

    def __init__(self, ranks: Ranks | None = None, group: dist.ProcessGroup | None = None) -> None:
        self.ranks, self._group, self._whole = ranks or Ranks(), group, True

    def open(self, opening: Opening) -> Learner:
        """The policy at the start of an update, on every process.

        Raises:
            TrainingBroken: a process cannot read it; on every process.
            UpdateRefused: the processes read different weights; on every process.
        """
        with self._ordered(opening):
            return self._open(opening)

    def step(self, learner: Learner, step: Step) -> dict[str, float]:
        """What one optimiser step measured and counted over all processes; the weights are changed on each of them.

        Raises:
            UpdateRefused: the batch or its gradient must not be trained on; on every process.
        """
        with self._ordered(step):
            return learner.step(step.batch, micro_tokens=step.micro_tokens, seed=step.seed)

    def settle(self, learner: Learner) -> None:
        """Nothing, when all processes have the same weights.

        Raises:
            UpdateRefused: they have not; on every process.
        """
        with self._ordered(Agree()):
            learner.agree()

    def follow(self) -> None:
        """Do what the leader orders until it is done.

        Raises:
            TallyError: an order cannot be done, or the leader is gone.
        """
        learner: Learner | None = None
        while (order := self._exchanged(None)) is not None:
            if isinstance(order, Opening):
                learner = None
                learner = self._open(order)
            elif learner is None:
                raise TrainingBroken(f"order {type(order).__name__} came before any policy; allowed: after one was opened")
            elif isinstance(order, Step):
                learner.step(order.batch, micro_tokens=order.micro_tokens, seed=order.seed)
            else:
                learner.agree()

    def dismiss(self) -> None:
        """Tell the others that the leader is done; where an order failed they know, and are not to be told."""
        if self._whole:
            with suppress(ProcessLost):
                self._exchanged(None)

    @contextmanager
    def _ordered(self, order: Order) -> Iterator[None]:
        whole, self._whole = self._whole, False
        self._exchanged(order)
        yield
        self._whole = whole

    def _open(self, opening: Opening) -> Learner:
        if self.ranks.world == 1:
            return opening.learner(self.ranks)
        made, refusal = None, ""
        try:
            made = opening.learner(self.ranks)
        except TallyError as error:
            refusal = f"process {self.ranks.rank}: {error}"
        if refusals := [told for told in gathered(refusal, self.ranks) if told]:
            raise TrainingBroken("; ".join(refusals))
        assert made is not None
        made.agree()
        return made

    def _exchanged(self, order: Order) -> Order:
        if self.ranks.world == 1:
            return order
        held = [order]
        with reaching():
            dist.broadcast_object_list(held, src=0, group=self._group)
        return held[0]


@contextmanager
def teamed() -> Iterator[Team]:
    """The team of this process: with those that torchrun started, for as long as the block runs; alone where it was started otherwise."""
    with joined() as ranks:
        team = Team(ranks, dist.new_group(timeout=_IDLE, backend="gloo") if ranks.world > 1 else None)
        try:
            yield team
        finally:
            if ranks.rank == 0:
                team.dismiss()
