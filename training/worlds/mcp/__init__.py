"""Any MCP server as a world, over stdio or streamable HTTP."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger.bundle import BundleDraft
from ledger.errors import SettingsError
from ledger.settings import Settings
from training.worlds import World
from training.worlds.reference_scripts import SCRIPTS
from training.worlds.source import TaskQuery, WorldSource

if TYPE_CHECKING:
    from training.worlds.mcp.world import McpWorld

__all__ = ["SOURCE"]

_NOTES = {"command": ["{python}", "{examples}/notes/server.py"]}


def _open(settings: Settings, options: Mapping[str, Any]) -> "McpWorld":
    from training.worlds.mcp.world import McpWorld, server_of

    named = options.get("name")
    if named not in (None, "notes") or (named and len(options) > 1):
        raise SettingsError(f'MCP world {dict(options)}; allowed: name = "notes" alone, or the options of a server')
    return McpWorld(server_of(_NOTES if named else options), settings.data_dir / "venvs")


def _tasks(world: World[Any], query: TaskQuery, settings: Settings) -> Sequence[BundleDraft]:
    from training.worlds.mcp.tasks import load_tasks
    from training.worlds.mcp.world import EXAMPLES, McpWorld

    assert isinstance(world, McpWorld)
    if "tasks" not in query.options and "name" not in query.options:
        raise SettingsError("tasks over an MCP server need the option `tasks`, a TOML file")
    path = Path(query.options.get("tasks", EXAMPLES / "notes" / "tasks.toml"))
    return load_tasks(world, path, count=query.count)


SOURCE = WorldSource(
    "mcp",
    open=_open,
    tasks=_tasks,
    verifiers=(("end_state", "state_diff"),),
    scripts=SCRIPTS,
    opening=("name", "command", "url", "requirements", "env", "mode", "timeout_s", "snapshots", "workers"),
)
"""MCP servers as experiments open them: the options of `world.Server`, and `tasks`, a TOML file; or `name = "notes"`, the example."""
