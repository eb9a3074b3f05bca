"""The multi-turn part of the Berkeley Function-Calling Leaderboard v4 as a world: eight simulated APIs, run in a process apart."""

from collections.abc import Sequence
from typing import Any

from ledger.bundle import BundleDraft
from ledger.settings import Settings
from ledger.wheels import fetch_wheel
from training.worlds import World
from training.worlds.bfcl.docs import WHEEL
from training.worlds.bfcl.reference_ends import reference_ends
from training.worlds.bfcl.scripts import wrong
from training.worlds.bfcl.tasks import CATEGORIES, load_tasks
from training.worlds.bfcl.world import Bfcl, BfclState
from training.worlds.reference_scripts import SCRIPTS, oracle, replay, with_end_state
from training.worlds.source import TaskQuery, WorldSource

__all__ = ["CATEGORIES", "SOURCE", "WHEEL", "Bfcl", "BfclState", "load_tasks", "oracle", "replay", "with_end_state", "wrong"]


def _tasks(world: World[Any], query: TaskQuery, settings: Settings) -> Sequence[BundleDraft]:
    assert isinstance(world, Bfcl)
    categories = [query.options.get("category", CATEGORIES[0])]
    tasks = load_tasks(fetch_wheel(WHEEL, settings.data_dir / "wheels"), categories=categories)
    return reference_ends(world, tasks[: query.count], settings.data_dir / "reference_ends")


SOURCE = WorldSource(
    "bfcl",
    open=lambda settings, options: Bfcl(fetch_wheel(WHEEL, settings.data_dir / "wheels"), brief=True),
    tasks=_tasks,
    verifiers=(("bfcl_checker", "program"), ("end_state", "state_diff")),
    scripts=SCRIPTS,
)
"""The leaderboard's tasks as experiments open them; the option `category` is one of `CATEGORIES`."""
