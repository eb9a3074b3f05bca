"""Gymnasium's text and discrete environments as a world: one tool takes an action, the environment's own reward judges."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ledger.bundle import BundleDraft
from ledger.settings import Settings
from training.worlds import World
from training.worlds.adapter_scripts import SCRIPTS
from training.worlds.gymnasium import worker
from training.worlds.gymnasium.tasks import load_tasks
from training.worlds.package_venv import package_venv
from training.worlds.process_host import WorkerProgram
from training.worlds.process_world import ProcessWorld, world_source
from training.worlds.source import TaskQuery, WorldSource

__all__ = ["REQUIREMENTS", "SOURCE", "Gymnasium", "open_gymnasium"]

REQUIREMENTS = ("gymnasium==1.4.0",)


class Gymnasium(ProcessWorld):
    """Environments in worker processes; end states are compared on the observation and on how the episode ended."""

    def material(self, view: Any) -> Any:
        """The last observation and whether the episode reached its own end."""
        return {"observation": view["environment"]["observation"], "terminated": view["episode"]["terminated"]}


def open_gymnasium(settings: Settings, options: Mapping[str, Any]) -> Gymnasium:
    """The world in an environment with Gymnasium and the packages that `requirements` adds; `module` registers their environments."""
    requirements = [*REQUIREMENTS, *options.get("requirements", [])]
    venv = package_venv("gymnasium", requirements, settings.data_dir / "venvs", imports=["gymnasium.envs.toy_text"])
    chosen = {"module": options.get("module")}
    program = WorkerProgram(venv.python, Path(str(worker.__file__)), chosen)
    return Gymnasium("gymnasium", program, world_source(Path(__file__).parent, venv.frozen, chosen))


def _tasks(world: World[Any], query: TaskQuery, settings: Settings) -> Sequence[BundleDraft]:
    assert isinstance(world, ProcessWorld)
    return load_tasks(world, query)


SOURCE = WorldSource(
    "gymnasium",
    open=open_gymnasium,
    tasks=_tasks,
    verifiers=(("environment_reward", "program"),),
    scripts=SCRIPTS,
    opening=("requirements", "module"),
)
"""Gymnasium as experiments open it."""
