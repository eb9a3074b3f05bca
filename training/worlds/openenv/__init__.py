"""OpenEnv's client environments as a world: a server by its URL, or one started beside each worker; its own rewards judge."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ledger.bundle import BundleDraft
from ledger.errors import SettingsError
from ledger.settings import Settings
from training.worlds import World
from training.worlds.adapter_scripts import SCRIPTS
from training.worlds.openenv import worker
from training.worlds.openenv.tasks import OPENING, load_tasks
from training.worlds.package_venv import package_venv
from training.worlds.process_host import WorkerProgram
from training.worlds.process_world import ProcessWorld, world_source
from training.worlds.source import TaskQuery, WorldSource

__all__ = ["REQUIREMENTS", "SOURCE", "OpenEnv", "open_openenv"]

REQUIREMENTS = ("openenv==0.10.0",)
EXAMPLE = "example_server:app"
EXAMPLE_TASKS = {
    "prompt": "The environment thinks of a number from 0 to 99. Find it with as few guesses as you can.",
    "at_least": 1.0,
    "licence": "Apache-2.0",
    "references": {"7": [{"number": 50}, {"number": 25}, {"number": 41}], "8": [{"number": 29}]},
}
MESSAGE_S = 60.0


class OpenEnv(ProcessWorld):
    """Sessions on a server; end states are compared on the observation and on how the episode ended."""

    def material(self, view: Any) -> Any:
        """The last observation and whether the environment ended the episode."""
        return {"observation": view["environment"]["observation"], "terminated": view["episode"]["terminated"]}


def open_openenv(settings: Settings, options: Mapping[str, Any]) -> OpenEnv:
    """The world of a running server (`base_url`), or of one that each worker starts (`server` in the folder `path`).

    Without either it is the example in this folder. What stands behind a URL is not in the world's version; what is in `path` is.

    Raises:
        SettingsError: `base_url` together with `server`, or `server` without a folder.
        VenvFailed: the package or `requirements` cannot be installed.
    """
    base_url, server, path = options.get("base_url"), options.get("server"), options.get("path")
    if base_url and (server or path):
        raise SettingsError(f"world 'openenv' takes base_url or server with path; seen base_url {base_url!r} and server {server!r}")
    if not base_url and not server:
        server, path = EXAMPLE, str(Path(__file__).parent)
    if server and not (path and Path(path).is_dir()):
        raise SettingsError(f"option path of world 'openenv' is {path!r}; allowed: the folder that holds the server {server!r}")
    requirements = [*REQUIREMENTS, *options.get("requirements", [])]
    venv = package_venv("openenv", requirements, settings.data_dir / "venvs", imports=["openenv.core.env_server.http_server", "uvicorn"])
    folder = None if path is None else str(Path(path).resolve())
    chosen = {"base_url": base_url, "server": server, "path": folder, "message_s": MESSAGE_S}
    program = WorkerProgram(venv.python, Path(str(worker.__file__)), chosen, start_s=240.0, call_s=MESSAGE_S + 10.0)
    behind = {"base_url": base_url, "server": server, "files": None if folder is None else _files(Path(folder))}
    return OpenEnv("openenv", program, world_source(Path(__file__).parent, venv.frozen, behind), workers=2)


def _files(folder: Path) -> dict[str, str]:
    """Digests of the Python files of a folder, by place."""
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.rglob("*.py"))
    }  # fmt: skip


def _tasks(world: World[Any], query: TaskQuery, settings: Settings) -> Sequence[BundleDraft]:
    assert isinstance(world, ProcessWorld)
    is_example = not query.options.keys() & {"base_url", "server"}
    return load_tasks(world, query, EXAMPLE_TASKS if is_example else {})


SOURCE = WorldSource(
    "openenv",
    open=open_openenv,
    tasks=_tasks,
    verifiers=(("environment_reward", "program"),),
    scripts=SCRIPTS,
    opening=OPENING,
)
"""OpenEnv as experiments open it."""
