"""An MCP server over the official `mcp` package that asks the process that started it about everything. Serves stdio or HTTP.

It imports nothing of this project and is run by the Python of the package's own environment: `python -P -s -B front.py <options as JSON>`.
Options: `name`, `instructions`, `link` (descriptor of a socket to the starting process), `transport` (stdio or http), `host`, `port`. Over
the link go JSON lines `{"id", "op", "task", "session", …}` and back `{"id", "ok"}` or `{"id", "failed"}`. Over HTTP, task and session are
parts of the path, `/<task>/<session>/mcp`, so that a session is the same whatever protocol version the client speaks; stdio has one.
"""

import asyncio
import json
import os
import socket
import sys
from typing import Any

import uvicorn
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import INTERNAL_ERROR, CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool

LINE_BYTES = 1 << 28
ERROR_CLASS = "tallystick/error_class"


class Link:
    """Asks the starting process; this process ends when that one does."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last = 0

    async def open(self, descriptor: int) -> None:
        """Connect, and answer from now on."""
        self._reader, self._writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor), limit=LINE_BYTES)
        self._reading = asyncio.create_task(self._read())

    async def ask(self, **request: Any) -> Any:
        """What the starting process answers; what fails there is an error of the protocol, not of the tool."""
        self._last += 1
        future = asyncio.get_running_loop().create_future()
        self._waiting[self._last] = future
        self._writer.write(json.dumps({"id": self._last, **request}).encode() + b"\n")
        await self._writer.drain()
        reply = await future
        if "ok" not in reply:
            raise MCPError(INTERNAL_ERROR, str(reply.get("failed")))
        return reply["ok"]

    async def _read(self) -> None:
        while line := await self._reader.readline():
            reply = json.loads(line)
            self._waiting.pop(reply["id"]).set_result(reply)
        os._exit(0)


def server_of(link: Link, options: dict[str, Any]) -> Server[Any]:
    """The server with its two handlers."""

    def place(context: Any) -> dict[str, str]:
        return dict(context.request.path_params) if context.request is not None else {"task": "", "session": "stdio"}

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        tools = await link.ask(op="tools", **place(context))
        return ListToolsResult(tools=[Tool(name=t["name"], description=t.get("description"), input_schema=t["parameters"]) for t in tools])

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        reply = await link.ask(op="call", **place(context), name=params.name, arguments=params.arguments or {})
        refused = reply["error_class"] is not None
        meta = {ERROR_CLASS: reply["error_class"]} if refused else None
        return CallToolResult(content=[TextContent(text=reply["content"])], is_error=refused, _meta=meta)

    return Server(options["name"], instructions=options["instructions"], on_list_tools=list_tools, on_call_tool=call_tool)


async def main(options: dict[str, Any]) -> None:
    """Serve until the client or the starting process goes."""
    link = Link()
    await link.open(options["link"])
    server = server_of(link, options)
    if options["transport"] == "stdio":
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return
    app = server.streamable_http_app(
        streamable_http_path="/{task}/{session}/mcp", stateless_http=True, json_response=True, host=options["host"]
    )
    with socket.create_server((options["host"], options["port"])) as listening:
        await link.ask(op="listening", port=listening.getsockname()[1])
        await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve(sockets=[listening])


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
