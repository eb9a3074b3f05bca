"""A policy of the desk that was trained for half a minute, in two versions, for benchmarks that need rollouts of several turns. Trains."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from tests.training.optimise.lab_files import admit
from training import stages
from training.lab import Lab
from training.optimise.opened import Training
from training.optimise.samplers import open_sampler
from training.optimise.trainer import train
from training.run_config import RunConfig

TASKS = 16


@dataclass(frozen=True)
class Version:
    """A model version and its policy folder."""

    name: str
    folder: Path


def config() -> RunConfig:
    """Copying, then imitation of the oracle in two stages, each of which leaves a version that knows how to call tools."""
    optimiser = {"learning_rate": 3e-3, "warmup_steps": 10}
    imitation: dict[str, Any] = {
        "stage": "supervised", "traces": [{"policy": "oracle", "rollouts": 4 * TASKS}], "batch_tokens": 1200, "optimiser": optimiser,
    }  # fmt: skip
    return RunConfig.model_validate({
        "name": "briefly", "seed": 1, "reward": "partial_conditions",
        "harness": {"tool_format": "compact", "results": "values", "calls": 12, "calls_per_turn": 12, "max_tokens": 16},
        "tasks": [{"world": "ticket_desk", "count": TASKS, "seed": 3, "options": {"families": True, "level": 0, "split": "train"}}],
        "train": {"policy": {"source": "tiny", "preset": "0.2M"}, "stages": [
            {"stage": "copy", "steps": 20, "batch_tokens": 600, "optimiser": optimiser},
            {"name": "first", "steps": 150, **imitation}, {"name": "second", "steps": 50, **imitation},
        ]},
    })  # fmt: skip


@contextmanager
def opened(ledger: LedgerHandle, folder: Path) -> Iterator[Lab]:
    """The experiment with its worlds and tasks."""
    with Lab(config(), ledger, Settings(data_dir=folder, processes=1)) as lab:
        stages.worlds(lab)
        stages.task_bundles(lab)
        admit(ledger, lab)
        yield lab


def briefly_trained(lab: Lab) -> tuple[Version, Version]:
    """The versions after the first and the second stage of imitation."""
    made = {trained.place.stage.name: trained.update.after for trained in train(lab, open_sampler)}
    folder_of = Training(lab).folder
    return Version(made["first"], folder_of(made["first"])), Version(made["second"], folder_of(made["second"]))
