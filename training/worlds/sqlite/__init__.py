"""SQLite worlds: a schema, seed rows and tools in SQL, served from a folder of text files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ledger.bundle import BundleDraft
from ledger.errors import SettingsError
from ledger.settings import Settings
from training.worlds import World
from training.worlds.reference_scripts import SCRIPTS
from training.worlds.source import TaskQuery, WorldSource
from training.worlds.sqlite.definition import EXAMPLES, read_definition
from training.worlds.sqlite.tasks import load_tasks
from training.worlds.sqlite.world import SqliteState, SqliteWorld

__all__ = ["EXAMPLES", "SOURCE", "SqliteState", "SqliteWorld", "load_tasks", "read_definition", "world_folder"]


def world_folder(options: Mapping[str, Any]) -> Path:
    """The folder of the world that the options name: `folder`, or `name` for one of the examples.

    Raises:
        SettingsError: neither or both are given, or there is no such example.
    """
    names = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
    if ("name" in options) == ("folder" in options):
        raise SettingsError(f"a SQLite world needs either `folder` or `name`, one of {', '.join(names)}; seen {dict(options)}")
    if "folder" in options:
        return Path(options["folder"])
    if options["name"] not in names:
        raise SettingsError(f"no SQLite world {options['name']!r}; there are {', '.join(names)}")
    return EXAMPLES / str(options["name"])


def _tasks(world: World[Any], query: TaskQuery, settings: Settings) -> Sequence[BundleDraft]:
    assert isinstance(world, SqliteWorld)
    return load_tasks(world, world_folder(query.options), count=query.count)


SOURCE = WorldSource(
    "sqlite",
    open=lambda settings, options: SqliteWorld(read_definition(world_folder(options))),
    tasks=_tasks,
    verifiers=(("sqlite_conditions", "program"), ("end_state", "state_diff")),
    scripts=SCRIPTS,
    opening=("name", "folder"),
)
"""SQLite worlds as experiments open them; the options `name` or `folder` say which."""
