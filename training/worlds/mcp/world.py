"""The world of any MCP server: a state is the way to it, unless the server gives snapshots. Starts processes."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ledger.errors import SettingsError
from training.worlds.package_venv import package_venv
from training.worlds.process_host import WorkerProgram
from training.worlds.process_world import ProcessWorld, world_source

REQUIREMENTS = ("mcp==2.3.0",)
FOLDER = Path(__file__).parent
EXAMPLES = FOLDER / "examples"


class Server(BaseModel):
    """How a server is reached: the options of a world that name it.

    Attributes:
        command: program and arguments of a server over stdio; `{python}` is the interpreter of `requirements`' environment, `{ours}` this
            process's, `{examples}` the folder of examples, `{task}` and `{session}` the task's name and a fresh session name.
        url: address of a server over streamable HTTP, with `{task}` and `{session}` likewise.
        requirements: pinned packages of the server, installed in an environment of its own; without any it runs in the client's.
        env: further environment variables of the command; nothing else of ours is passed on.
        mode: protocol: `auto` asks for the newest and falls back, `legacy` begins with `initialize`, or a version.
        timeout_s: seconds that one request may take.
        snapshots: the server offers `tally_snapshot` and `tally_restore`, which makes the world exact.
        workers: sessions at most that are held open.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: tuple[str, ...] = ()
    url: str | None = None
    requirements: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    mode: str = "auto"
    timeout_s: float = Field(default=30.0, gt=0)
    snapshots: bool = False
    workers: int = Field(default=4, ge=1, le=64)

    @model_validator(mode="after")
    def _one_way(self) -> "Server":
        if bool(self.command) == (self.url is not None):
            raise ValueError("give either `command` or `url`")
        return self


def server_of(options: Mapping[str, Any]) -> Server:
    """The server that a world's options name.

    Raises:
        SettingsError: an option is unknown or does not fit.
    """
    try:
        return Server.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors()[0]
        raise SettingsError(f"MCP server: {'.'.join(map(str, first['loc']))}: {first['msg']}; seen {first.get('input')!r}") from error


class McpWorld(ProcessWorld):
    """A world over an MCP server; each live session is held by one worker, and it must be closed.

    The protocol has no snapshots. Restoring a state begins a new session and makes its calls again, and every answer and view must come out
    as recorded (fidelity `replay`); a server of our own gives and takes snapshots (fidelity `exact`). What is seen of a state are the
    answers of the task's `probes`, or, without any, the calls that were not refused: then end states compare calls, not effects.

    Args:
        server: how it is reached.
        folder: where environments of packages are kept.
    """

    def __init__(self, server: Server, folder: Path) -> None:
        client = package_venv("mcp", REQUIREMENTS, folder)
        own = package_venv("mcp-server", server.requirements, folder) if server.requirements else client
        names = {"python": str(own.python), "ours": sys.executable, "examples": str(EXAMPLES)}
        options: dict[str, Any] = {
            "timeout_s": server.timeout_s,
            "mode": server.mode,
            "snapshots": server.snapshots,
            "env": dict(server.env),
        }
        options |= {"url": server.url} if server.url else {"command": [_filled(part, names) for part in server.command]}
        limit_s = 3 * server.timeout_s + 90
        program = WorkerProgram(client.python, FOLDER / "adapter.py", options, call_s=limit_s)
        named = server.model_dump(mode="json", exclude={"workers", "env"}) | {"env_names": sorted(server.env)}
        source = world_source(FOLDER, client.frozen + (own.frozen if own is not client else ""), named)
        super().__init__("mcp", program, source, saves=server.snapshots, workers=server.workers)

    def material(self, view: Any) -> Any:
        """What the server itself calls material, or the whole view."""
        return view["material"] if isinstance(view, Mapping) and "material" in view else view


def _filled(text: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text
