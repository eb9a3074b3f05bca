"""Generated Python classes as worlds: attributes are the state, public methods the tools; they run in a sandbox."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ledger.bundle import BundleDraft
from ledger.settings import Settings
from training.worlds import World
from training.worlds.python_class.tasks import EXAMPLES, read_sources, read_tasks
from training.worlds.python_class.world import ClassState, PythonClasses
from training.worlds.reference_scripts import SCRIPTS
from training.worlds.source import TaskQuery, WorldSource

__all__ = ["EXAMPLES", "SOURCE", "ClassState", "PythonClasses", "read_sources", "read_tasks"]


def _open(settings: Settings, options: Mapping[str, Any]) -> PythonClasses:
    return PythonClasses(read_sources(Path(options.get("folder", EXAMPLES))))


def _tasks(world: World[Any], query: TaskQuery, settings: Settings) -> Sequence[BundleDraft]:
    assert isinstance(world, PythonClasses)
    return read_tasks(Path(query.options.get("folder", EXAMPLES)), world)[: query.count]


SOURCE = WorldSource("python_class", open=_open, tasks=_tasks, scripts=SCRIPTS, opening=("folder",))
"""Class worlds as experiments open them; the option `folder` names a folder of classes and tasks, the shipped ones when left out."""
