"""A small experiment on the ticket desk that trains, with its bundles admitted by hand, for tests."""

from pathlib import Path
from typing import Any

from ledger.events import BundleAdmitted, CheckRan
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from training import stages
from training.lab import Lab
from training.run_config import RunConfig

RATE = {"learning_rate": 3e-3}


def config(*, name: str = "small", seed: int = 1, rounds: int = 2, **reinforce: Any) -> RunConfig:
    """Copying, imitation of the oracle, then rounds of two groups of three rollouts by a policy that knows next to nothing."""
    stages_of = [
        {"stage": "copy", "steps": 4, "batch_tokens": 300, "optimiser": RATE},
        {"stage": "supervised", "traces": [{"policy": "oracle", "rollouts": 4}], "steps": 4, "batch_tokens": 800, "optimiser": RATE},
        {"stage": "reinforce", "rounds": rounds, "groups": 2, "group_size": 3, "optimiser": RATE, **reinforce},
    ]
    return RunConfig.model_validate({
        "name": name, "seed": seed, "reward": "partial_conditions",
        "harness": {"tool_format": "compact", "tools_in_prompt": False, "results": "values", "calls": 3, "calls_per_turn": 3, "max_tokens": 8},
        "tasks": [{"world": "ticket_desk", "count": 4, "seed": 3, "options": {"families": True, "level": 0, "split": "train"}}],
        "train": {"policy": {"source": "tiny", "preset": "0.2M"}, "stages": stages_of},
    })  # fmt: skip


def opened(ledger: LedgerHandle, folder: Path, made: RunConfig | None = None) -> Lab:
    """The experiment opened in a folder, its bundles sealed and admitted."""
    lab = Lab(made or config(), ledger, Settings(data_dir=folder))
    stages.worlds(lab)
    stages.task_bundles(lab)
    admit(ledger, lab)
    return lab


def admit(ledger: LedgerHandle, lab: Lab) -> None:
    """Decisions as the gates leave them, without running the gates."""
    results = ledger.pending_json({})
    events = [
        ledger.new(CheckRan(
            subject=f"world-{world.version}", check_id="by.hand", method_id="0" * 64, status="pass", severity="fail", policy_id="1" * 64,
            inputs_digest="2" * 64,
        ))
        for world in lab.worlds.values()
    ]  # fmt: skip
    events += [
        ledger.new(BundleAdmitted(
            bundle_id=bundle.bundle_id, statuses={}, blocking=[], policy="by hand", policy_id="1" * 64, gate_id="3" * 64, results=results.ref,
        ), results)
        for bundle in lab.bundles
    ]  # fmt: skip
    ledger.append(events)
