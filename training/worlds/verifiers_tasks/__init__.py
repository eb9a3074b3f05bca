"""Tasksets of verifiers v1 as a world: the policy hands in an answer, and the taskset's own rewards judge it in its environment."""

import atexit
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ledger.bundle import BundleDraft
from ledger.errors import SettingsError
from ledger.settings import Settings
from training.worlds import World
from training.worlds.adapter_scripts import SCRIPTS
from training.worlds.package_venv import package_venv
from training.worlds.process_host import WorkerProgram
from training.worlds.process_world import ProcessWorld, world_source
from training.worlds.source import TaskQuery, WorldSource
from training.worlds.verifiers_tasks import worker
from training.worlds.verifiers_tasks.tasks import OPENING, conversation, load_tasks

__all__ = ["REQUIREMENTS", "SOURCE", "Taskset", "conversation", "open_taskset", "opened_taskset"]

REQUIREMENTS = ("verifiers==0.4.0",)
EXAMPLE = {"taskset": "example_taskset", "path": str(Path(__file__).parent)}


class Taskset(ProcessWorld):
    """A taskset in worker processes; `opened` is how it was opened, with digests of the files in its folder."""

    def __init__(self, program: WorkerProgram, source: str, opened: Mapping[str, Any]) -> None:
        super().__init__("verifiers_tasks", program, source, workers=1)
        self.opened = dict(opened)


def open_taskset(settings: Settings, options: Mapping[str, Any]) -> Taskset:
    """The world of a taskset: `taskset` is its id or module, installed by `requirements` or found in the folder `path`.

    `config` holds the taskset's settings. Without a taskset it is the example in this folder.

    Raises:
        SettingsError: a `path` that is no folder.
        VenvFailed: the package or `requirements` cannot be installed.
    """
    chosen = {**EXAMPLE, **options} if "taskset" not in options else dict(options)
    path = chosen.get("path")
    if path is not None and not Path(path).is_dir():
        raise SettingsError(
            f"option path of world 'verifiers_tasks' is {path!r}; allowed: a folder that holds taskset {chosen['taskset']!r}"
        )
    requirements = list(chosen.get("requirements", []))
    folder = None if path is None else str(Path(path).resolve())
    opened = {"taskset": chosen["taskset"], "path": folder, "config": dict(chosen.get("config", {})), "requirements": requirements}
    files = None if folder is None else _files(Path(folder))
    venv = package_venv("verifiers", [*REQUIREMENTS, *requirements], settings.data_dir / "venvs", imports=["verifiers.v1"])
    program = WorkerProgram(venv.python, Path(str(worker.__file__)), opened, start_s=240.0, call_s=60.0)
    behind = {**opened, "path": None, "files": files}
    return Taskset(program, world_source(Path(__file__).parent, venv.frozen, behind), {**opened, "files": files})


@lru_cache(maxsize=4)
def opened_taskset(data_dir: Path, opened_json: str) -> Taskset:
    """The taskset that a bundle's spec names, with workers that end with this process.

    Raises:
        SettingsError: the files in the taskset's folder are not those that the bundle was made with.
    """
    opened = json.loads(opened_json)
    files = opened.pop("files")
    world = open_taskset(Settings(data_dir=data_dir), {key: value for key, value in opened.items() if value is not None})
    atexit.register(world.close)
    if world.opened["files"] != files:
        raise SettingsError(f"the files of taskset {opened['taskset']!r} in {opened['path']} changed since its bundles were made")
    return world


def _files(folder: Path) -> dict[str, str]:
    """Digests of the Python files of a folder, by place."""
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.rglob("*.py"))
    }  # fmt: skip


def _tasks(world: World[Any], query: TaskQuery, settings: Settings) -> Sequence[BundleDraft]:
    assert isinstance(world, Taskset)
    return load_tasks(world, query, world.opened)


SOURCE = WorldSource(
    "verifiers_tasks",
    open=open_taskset,
    tasks=_tasks,
    verifiers=(("taskset_rewards", "program"),),
    scripts=SCRIPTS,
    opening=OPENING,
)
"""Tasksets as experiments open them."""
