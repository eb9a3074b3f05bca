"""Training in a process of its own that is killed at a chosen append, before or after it is durable."""

import multiprocessing
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger.ledger import LedgerHandle, open_ledger
from ledger.settings import Settings
from ledger.store import New, Receipt
from training.lab import Lab
from training.run_config import RunConfig

KILLED = -signal.SIGKILL


@dataclass(frozen=True)
class Death:
    """When to die: at append number `at` that holds an event of `kind` (any when None), before it is written or after it is durable."""

    at: int
    before: bool = True
    kind: str | None = None


class DyingLedger(LedgerHandle):
    """A ledger whose process kills itself."""

    death: Death | None = None
    seen = 0

    def append(self, events: Sequence[New], *, expected: Mapping[str, int] | None = None) -> Receipt:
        death = self.death
        hit = False
        if death is not None and (death.kind is None or any(event.body.kind == death.kind for event in events)):
            self.seen += 1
            hit = self.seen == death.at
        if hit and death is not None and death.before:
            os.kill(os.getpid(), signal.SIGKILL)
        receipt = super().append(events, expected=expected)
        if hit:
            os.kill(os.getpid(), signal.SIGKILL)
        return receipt


def train_in_child(
    url: str, folder: Path, config: RunConfig, *, death: Death | None = None, until: str | None = None
) -> tuple[int | None, int]:
    """Exit code of a process that trains, negative for the signal that killed it, and how many appends it made."""
    context = multiprocessing.get_context("fork")
    counted = context.Value("i", 0)
    child = context.Process(target=_train, args=(url, folder, config, death, until, counted))
    child.start()
    child.join(600)
    return child.exitcode, int(counted.value)


def parts_in_child(url: str, folder: Path, config: RunConfig, labels: Sequence[str]) -> int | None:
    """Exit code of a process that makes each of these rounds in three parts, each part in an experiment opened anew."""
    child = multiprocessing.get_context("fork").Process(target=_parts, args=(url, folder, config, labels))
    child.start()
    child.join(600)
    return child.exitcode


def _parts(url: str, folder: Path, config: RunConfig, labels: Sequence[str]) -> None:
    import torch

    from training.optimise import trainer
    from training.optimise.samplers import open_sampler

    torch.set_num_threads(1)
    with open_ledger(url, project="test", actor_id="tester") as ledger:
        counts = []
        for label in labels:
            for part in (
                lambda lab: trainer.sft_model(lab),
                lambda lab, label=label: trainer.rollouts(lab, label, open_sampler),
                lambda lab, label=label: trainer.training_batch(lab, label),
                lambda lab, label=label: trainer.model_version(lab, label),
                lambda lab, label=label: trainer.model_version(lab, label),
            ):
                with Lab(config, ledger, Settings(data_dir=folder)) as lab:
                    counts.append(dict(part(lab).counts))
            rounds = [{"expected": 6, "already": 0, "new": 6}, {"rollouts": 6, "vote": 6, "train": 6}]
            updates = [{"updates": 1, "new": 1}, {"updates": 1, "new": 0}]
            assert counts[-5:] == [{"updates": 2, "new": 0}, *rounds, *updates], counts


def _train(url: str, folder: Path, config: RunConfig, death: Death | None, until: str | None, counted: Any) -> None:
    import torch

    from training.optimise.samplers import open_sampler
    from training.optimise.schedule import place_of, schedule
    from training.optimise.trainer import train

    torch.set_num_threads(1)
    assert config.train is not None
    place = None if until is None else place_of(schedule(config.train), until)
    with open_ledger(url, project="test", actor_id="tester") as plain:
        ledger = DyingLedger(
            plain.url, plain.pool, ledger_id=plain.ledger_id, project=plain.project, actor_id=plain.actor_id, clock=plain.clock,
            guards=plain.guards, rights=plain.rights,
        )  # fmt: skip
        ledger.death = death
        with Lab(config, ledger, Settings(data_dir=folder)) as lab:
            train(lab, open_sampler, until=place)
        counted.value = ledger.seen
