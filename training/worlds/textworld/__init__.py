"""TextWorld's text games as a world: one tool takes a command, the game's own score and end judge."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ledger.bundle import BundleDraft
from ledger.settings import Settings
from training.worlds import World
from training.worlds.adapter_scripts import SCRIPTS
from training.worlds.package_venv import package_venv
from training.worlds.process_host import WorkerProgram
from training.worlds.process_world import ProcessWorld, world_source
from training.worlds.source import TaskQuery, WorldSource
from training.worlds.textworld import worker
from training.worlds.textworld.tasks import load_tasks

__all__ = ["REQUIREMENTS", "SOURCE", "TextWorld", "open_textworld"]

REQUIREMENTS = ("textworld==1.7.0",)


class TextWorld(ProcessWorld):
    """Games in worker processes; end states are compared on the facts that hold in the game."""

    def material(self, view: Any) -> Any:
        """The facts, and whether the game was won."""
        return {"facts": view["environment"]["facts"], "won": view["episode"]["won"]}


def open_textworld(settings: Settings, options: Mapping[str, Any]) -> TextWorld:
    """The world in an environment with TextWorld; compiled games are kept in the data folder."""
    venv = package_venv("textworld", REQUIREMENTS, settings.data_dir / "venvs", imports=["textworld.generator"])
    games = {"games": str(settings.data_dir / "textworld_games")}
    program = WorkerProgram(venv.python, Path(str(worker.__file__)), games, call_s=60.0)
    return TextWorld("textworld", program, world_source(Path(__file__).parent, venv.frozen, {}), workers=2)


def _tasks(world: World[Any], query: TaskQuery, settings: Settings) -> Sequence[BundleDraft]:
    assert isinstance(world, ProcessWorld)
    return load_tasks(world, query)


SOURCE = WorldSource(
    "textworld", open=open_textworld, tasks=_tasks, verifiers=(("environment_reward", "program"),), scripts=SCRIPTS
)  # fmt: skip
"""TextWorld as experiments open it."""
