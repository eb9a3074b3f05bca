"""A client of any MCP server over the official `mcp` package, as a worker's adapter (see `worker_loop`): one live session at a time.

It imports nothing of this project and runs in the package's own environment. Starts the server's process or speaks to its URL.
"""

import asyncio
import hashlib
import json
import os
import re
import threading
from base64 import b64decode
from typing import Any

from mcp import Client, MCPError, StdioServerParameters
from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, REQUEST_TIMEOUT, CallToolResult, TextResourceContents
from pydantic import ValidationError

ERROR_CLASS = "tallystick/error_class"
ERROR_CLASSES = ("unknown_tool", "malformed_arguments", "invalid_arguments", "not_found", "tool_error")
SNAPSHOT, RESTORE = "tally_snapshot", "tally_restore"
START_S = 60.0
PAGES = 100


class ServerLate(Exception):
    """The server did not answer in time."""


class ServerGone(Exception):
    """The server could not be started or reached, or closed the connection."""


class ProtocolFault(Exception):
    """The server answered with an error of the protocol or with what is no answer."""


class Adapter:
    """One session with a server.

    Args:
        options: `command` (list) or `url`, with `{task}` and `{session}` for the task's name and a fresh session name; `env` of the
            command; `timeout_s` of a call; `mode` of the protocol (auto, legacy or a version); `snapshots`, whether the server offers
            the pair `tally_snapshot` and `tally_restore`.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._options, self._timeout_s = options, float(options.get("timeout_s", 30))
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._client: Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._task: dict[str, Any] = {}

    def reset(self, task: dict[str, Any], seed: int) -> str:
        """Begins a new session and makes the calls of the task's `setup`."""
        self._task, self._made = dict(task), list[Any]()
        self._wait(self._open(), START_S + self._timeout_s)
        for call in task.get("setup", []):
            content, error_class = self.call(call["name"], call["arguments"])
            if error_class is not None:
                raise ProtocolFault(f"setup call {call['name']!r} was refused: {content}")
        self._made.clear()
        return ""

    def tools(self, task: dict[str, Any]) -> list[dict[str, Any]]:
        """The server's tools as OpenAI schemas."""
        self.reset({**task, "setup": []}, 0)
        return [
            {"type": "function", "function": {"name": name, "description": tool.description or "", "parameters": tool.input_schema}}
            for name, tool in self._tools.items()
            if tool.name not in (SNAPSHOT, RESTORE)
        ]

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, str | None]:
        """What the policy reads, and why a call was refused."""
        if name not in self._tools or name in (SNAPSHOT, RESTORE):
            return json.dumps({"error": f"no tool {name!r}"}), "unknown_tool"
        tool = self._tools[name]
        try:
            result = self._ask(tool.name, arguments)
        except MCPError as error:
            return error.message, "invalid_arguments"
        error_class = None
        if result.is_error:
            said = (result.meta or {}).get(ERROR_CLASS)
            error_class = said if said in ERROR_CLASSES else "tool_error"
        elif not (tool.annotations and tool.annotations.read_only_hint):
            self._made.append([name, arguments])
        return shown(result), error_class

    def view(self) -> Any:
        """The state as far as it can be seen: the server's own, else what the probes answer, else the calls that were not refused."""
        if self._options.get("snapshots"):
            at_rest = self._at_rest()
            return {"state": at_rest["view"], "material": at_rest["material"]}
        probes = self._task.get("probes", [])
        if not probes:
            return {"calls": self._made}
        return {"probes": {f"{p['name']} {json.dumps(p['arguments'], sort_keys=True)}": self._probed(p) for p in probes}}

    def save(self) -> str:
        """The server's own snapshot."""
        at_rest = self._at_rest()
        return json.dumps({"task": self._task, "snapshot_id": at_rest["snapshot_id"], "data": at_rest["data"]})

    def load(self, data: str) -> None:
        """A new session in the state of the snapshot."""
        saved = json.loads(data)
        self.reset({**saved["task"], "setup": []}, 0)
        self._task = saved["task"]
        result = self._ask(RESTORE, {"snapshot_id": saved["snapshot_id"], "data": saved["data"]})
        if result.is_error:
            raise ProtocolFault(f"the server does not restore its snapshot: {shown(result)}")

    def server(self) -> dict[str, Any]:
        """Name, version and protocol of the server that was last spoken to."""
        assert self._client is not None
        info = self._client.server_info
        return {"name": info and info.name, "version": info and info.version, "protocol": self._client.protocol_version}

    def _at_rest(self) -> Any:
        result = self._ask(SNAPSHOT, {})
        if result.is_error:
            raise ProtocolFault(f"the server gives no snapshot: {shown(result)}")
        return json.loads(shown(result))

    def _probed(self, probe: dict[str, Any]) -> Any:
        result = self._ask(probe["name"], probe["arguments"])
        if result.is_error:
            raise ProtocolFault(f"probe {probe['name']!r} was refused: {shown(result)}")
        return shown(result) if result.structured_content is None else result.structured_content

    def _ask(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        assert self._client is not None
        result: CallToolResult = self._wait(
            self._client.call_tool(name, arguments, read_timeout_seconds=self._timeout_s), self._timeout_s + 5
        )
        return result

    def _wait(self, work: Any, limit_s: float) -> Any:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(limit_s)
        except TimeoutError as error:
            future.cancel()
            raise ServerLate(f"no answer within {self._timeout_s:g} s") from error
        except MCPError as error:
            if error.code == INVALID_PARAMS:
                raise
            kind = {REQUEST_TIMEOUT: ServerLate, CONNECTION_CLOSED: ServerGone}.get(error.code, ProtocolFault)
            raise kind(f"{error.message} (code {error.code})") from error
        except ValidationError as error:
            raise ProtocolFault(f"the answer is no result of the protocol: {error}") from error
        except (OSError, ExceptionGroup) as error:
            raise ServerGone(repr(error)) from error

    async def _open(self) -> None:
        await self._close()
        self._leave = asyncio.Event()
        opened: asyncio.Future[Client] = self._loop.create_future()
        self._owner = self._loop.create_task(self._hold(opened))
        waited: list[asyncio.Future[Any]] = [self._owner, opened]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            await self._owner
        self._client = await opened
        self._tools: dict[str, Any] = {}
        cursor = None
        for _ in range(PAGES):
            page = await self._client.list_tools(cursor=cursor)
            for tool in page.tools:
                name = re.sub(r"[^A-Za-z0-9_-]", "_", tool.name)[:64]
                if name in self._tools:
                    raise ProtocolFault(f"tools {tool.name!r} and {self._tools[name].name!r} would both be shown as {name!r}")
                self._tools[name] = tool
            cursor = page.next_cursor
            if not cursor:
                return
        raise ProtocolFault(f"the list of tools does not end after {PAGES} pages")

    async def _hold(self, opened: "asyncio.Future[Client]") -> None:
        """Enters and leaves the client in one task, as its cancel scopes need."""
        async with Client(self._target(), read_timeout_seconds=self._timeout_s, mode=self._options.get("mode", "auto")) as client:
            opened.set_result(client)
            await self._leave.wait()

    async def _close(self) -> None:
        if self._owner is not None:
            self._leave.set()
            await asyncio.wait([self._owner], timeout=10)
            self._owner = self._client = None

    def _target(self) -> Any:
        names = {"task": str(self._task.get("task", "")), "session": os.urandom(8).hex()}
        if "url" in self._options:
            return filled(self._options["url"], names)
        command = [filled(part, names) for part in self._options["command"]]
        return StdioServerParameters(command=command[0], args=command[1:], env={"HOME": os.environ["HOME"], **self._options.get("env", {})})


def filled(text: str, names: dict[str, str]) -> str:
    """The text with `{task}` and `{session}` replaced; other braces stay."""
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def shown(result: CallToolResult) -> str:
    """A result as text: texts as they are, the structured content where there is no text, and a note for everything else."""
    parts = [_part(block) for block in result.content]
    if not any(block.type == "text" for block in result.content) and result.structured_content is not None:
        parts.insert(0, json.dumps(result.structured_content, sort_keys=True, ensure_ascii=False))
    return "\n".join(parts)


def _part(block: Any) -> str:
    if block.type == "text":
        return str(block.text)
    if block.type in ("image", "audio"):
        return _note(block.type, block.mime_type, block.data)
    if block.type == "resource_link":
        return f"[link to resource {block.name} at {block.uri}]"
    if isinstance(block.resource, TextResourceContents):
        return f"[resource {block.resource.uri}]\n{block.resource.text}"
    return _note(f"resource {block.resource.uri}", block.resource.mime_type or "application/octet-stream", block.resource.blob)


def _note(kind: str, media: str, data: str) -> str:
    content = b64decode(data)
    return f"[{kind}, {media}, {len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()[:16]}, not shown]"
