"""Tools that are Python functions over the database: they run in the sandbox alone. Starts a sandboxed process."""

import base64
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ledger.canonical import canonical_bytes
from ledger.errors import BundleError, CanonicalError, WorldFailed
from training.worlds import Observation
from training.worlds.runtime import Limits, Program, Sandbox, Worker
from training.worlds.sqlite.database import opened, schema_of
from training.worlds.sqlite.definition import Definition

PROGRAM = Path(__file__).parent / "functions_worker.py"
MEMORY_BYTES = 512 << 20
ERROR_CLASSES = ("not_found", "invalid_arguments", "tool_error")


class Functions:
    """A world's Python tools at work; must be closed.

    Args:
        definition: the world, with the text of its functions.
        sandbox: where they run.
    Raises:
        BundleError: a tool names a function that the text does not have.
        WorldFailed: the text cannot be executed.
    """

    def __init__(self, definition: Definition, sandbox: Sandbox) -> None:
        self._definition, self._sandbox = definition, sandbox
        files = {"functions.py": definition.functions_py.encode()}
        self._program = Program(source=PROGRAM.read_text(encoding="utf-8"), files=files)
        self._limits = Limits(
            cpu_s=3600, wall_s=definition.limits.seconds + 2.0, memory_bytes=MEMORY_BYTES, scratch_bytes=0, output_bytes=64 << 20
        )
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        known = self._ask({"op": "names"})["names"]
        for tool in definition.tools:
            if tool.function is not None and tool.function not in known:
                raise BundleError(f"tool {tool.name!r} is function {tool.function!r}; functions.py has {', '.join(known)}")

    def run(self, name: str, data: bytes, arguments: Mapping[str, Any], schema: list[str]) -> tuple[bytes, Observation]:
        """The database after the call, and the answer as JSON text; a refused call leaves the bytes as they were.

        Raises:
            WorldFailed: the function broke, outran its limits, or left a database of another schema or size.
        """
        request = {"op": "call", "name": name, "data": base64.b64encode(data).decode(), "arguments": dict(arguments)}
        reply = self._ask(request)
        if "refused" in reply:
            error_class = reply["error_class"] if reply["error_class"] in ERROR_CLASSES else "tool_error"
            message = json.dumps({"error": error_class, "message": reply["refused"]}, separators=(",", ":"))
            return data, Observation(message, error_class)
        try:
            said = Observation(canonical_bytes(reply["answer"], allow_nul=True).decode())
        except CanonicalError as error:
            raise WorldFailed(f"function {name!r} answered what has no canonical form: {error}") from error
        if reply["data"] is None:
            return data, said
        after = base64.b64decode(reply["data"])
        if len(after) > self._definition.limits.database_bytes:
            raise WorldFailed(f"function {name!r} left {len(after)} bytes; allowed: {self._definition.limits.database_bytes}")
        with opened(after) as connection:
            if schema_of(connection) != schema:
                raise WorldFailed(f"function {name!r} changed the schema")
        return after, said

    def close(self) -> None:
        """Ends the process."""
        with self._lock:
            if self._worker is not None:
                self._worker.close()

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        line = json.dumps(request).encode()
        with self._lock:
            if self._worker is None or not self._worker.alive:
                self._worker = self._sandbox.start(self._program, limits=self._limits)
            try:
                reply: dict[str, Any] = json.loads(self._worker.ask(line))
            except WorldFailed as error:
                raise WorldFailed(f"functions of {self._definition.name!r}: {error}") from error
            except ValueError as error:
                self._worker.close()
                raise WorldFailed(f"functions of {self._definition.name!r} answered what is not JSON: {error}") from error
        return reply
