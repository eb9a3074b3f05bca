"""Runs the wheel's classes and its checker for the world: JSON lines in and out, one forked child a request, no state kept.

This file is started as a program of its own with the unpacked wheel's folder as argument; it imports nothing of this project.
"""

import base64
import datetime as datetime_module
import gc
import hashlib
import importlib
import inspect
import io
import json
import math
import os
import pickle
import random
import resource
import select
import signal
import sys
import time
import traceback
import types
import uuid
from typing import IO, Any, NoReturn

MEMORY_BYTES = 2 << 30
NOW = datetime_module.datetime.fromisoformat("2026-03-23T12:00:00")
SAFE_INTEGER = 2**53
BACKEND = "bfcl_eval.eval_checker.multi_turn_eval"
PICKLED = {("builtins", "set"), ("builtins", "object"), ("copyreg", "_reconstructor"), ("random", "Random"), ("datetime", "datetime")}
TOOL_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, BufferError, LookupError, NameError, OSError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
REFUSED_EVENTS = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.kill", "pty.",
                  "subprocess.", "socket.", "ctypes.", "shutil.", "ftplib.", "urllib.", "http.", "webbrowser.")  # fmt: skip


class FixedDatetime(datetime_module.datetime):
    """A datetime whose present moment never moves, so that a replay next year gives the same observations."""

    @classmethod
    def now(cls, tz: datetime_module.tzinfo | None = None) -> Any:
        """The fixed moment."""
        return NOW

    @classmethod
    def today(cls) -> Any:
        """The fixed moment."""
        return NOW


class Backend:
    """The wheel's classes, documented function names and checker functions, imported once before any request."""

    def __init__(self, unpacked: str) -> None:
        sys.path.append(unpacked)
        config = importlib.import_module("bfcl_eval.constants.executable_backend_config")
        docs = os.path.join(unpacked, "bfcl_eval", "data", "multi_turn_func_doc")
        self.stateless: set[str] = set(config.STATELESS_CLASSES)
        self.classes: dict[str, type] = {}
        self.functions: dict[str, set[str]] = {}
        for name, path in config.CLASS_FILE_PATH_MAPPING.items():
            if name.startswith(("WebSearch", "Memory")):
                continue
            module = importlib.import_module(path)
            clock = getattr(module, "datetime", None)
            if clock is datetime_module:
                module.datetime = types.SimpleNamespace(datetime=FixedDatetime)  # type: ignore[attr-defined]
            elif clock is datetime_module.datetime:
                module.datetime = FixedDatetime  # type: ignore[attr-defined]
            self.classes[name] = getattr(module, name)
            with open(os.path.join(docs, config.MULTI_TURN_FUNC_DOC_FILE_MAPPING[name]), encoding="utf-8") as lines:
                self.functions[name] = {json.loads(line)["name"] for line in lines if line.strip()}
        self.file_system = importlib.import_module(config.CLASS_FILE_PATH_MAPPING["GorillaFileSystem"])
        self.checker = importlib.import_module(f"{BACKEND}.multi_turn_checker")
        self.runner = importlib.import_module(f"{BACKEND}.multi_turn_utils")

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to one request: reset, call, view or check."""
        operation = {"reset": self.reset, "call": self.call, "view": self.look, "check": self.check}[request["op"]]
        return operation(request)

    def reset(self, request: dict[str, Any]) -> dict[str, Any]:
        """A fresh state of the classes, loaded by their own scenario loader with the seeds of the scenario."""
        instances: dict[str, Any] = {}
        for name in request["classes"]:
            instances[name] = self.classes[name]()
            if name not in self.stateless:
                instances[name]._load_scenario(_whole(request["config"].get(name, {})), long_context=request["long_context"])
        return self._packed(instances)

    def call(self, request: dict[str, Any]) -> dict[str, Any]:
        """The state after one call of a documented function with parsed arguments, and what it answered."""
        instances = self._unpacked(request["state"])
        name, arguments = request["name"], request["arguments"]
        owners = [owner for owner in instances if name in self.functions[owner]]
        if not owners:
            content = f"Error during execution: name {name!a} is not defined"
            return {**self._packed(instances), "content": content, "error_class": "unknown_tool"}
        function = getattr(instances[owners[-1]], name)
        error_class: str | None = None
        try:
            result = function(**arguments)
            content = _as_text(result)
            if isinstance(result, dict) and "error" in result:
                error_class = "tool_error"
        except TOOL_ERRORS as error:
            content = f"Error during execution: {error}"
            error_class = "tool_error" if _fits(function, arguments) else "invalid_arguments"
        return {**self._packed(instances), "content": content, "error_class": error_class}

    def look(self, request: dict[str, Any]) -> dict[str, Any]:
        """The JSON view of a state."""
        return {"view": self._view(self._unpacked(request["state"]))}

    def check(self, request: dict[str, Any]) -> dict[str, Any]:
        """The official verdict, and what its two sub-checks say of every turn, also after the first that failed.

        The official code keeps instances in module globals by model name and task, so each replay here has a name of its own.
        """
        entry = {"id": request["entry"], "initial_config": _whole(request["config"]), "involved_classes": request["classes"]}
        token = uuid.uuid4().hex
        official = self.checker.multi_turn_checker(request["model"], request["reference"], entry, "", f"official_{token}")
        turns: list[dict[str, Any]] = []
        outputs: list[str] = []
        for turn, (model, reference) in enumerate(zip(request["model"], request["reference"], strict=True)):
            ran, mine = self._run([call for step in model for call in step], entry, f"model_{token}")
            expected, theirs = self._run(reference, entry, f"reference_{token}")
            outputs.extend(ran)
            row: dict[str, Any] = {"turn": turn, "calls": len(ran), "reference_calls": len(reference), "outputs": ran}
            if reference:
                state = self.checker.state_checker(mine, theirs)
                response = self.checker.response_checker(outputs, expected, turn)
                row["empty"] = bool(self.runner.is_empty_execute_response(model))
                row["differences"] = self.plain(state["details"]["differences"]) if not state["valid"] else {}
                row["missing"] = [] if response["valid"] else response["details"]["missing_items"]
            turns.append(row)
        keys = ("valid", "error_type", "error_message")
        return {"official": {key: official[key] for key in keys if key in official}, "turns": turns}

    def _run(self, calls: list[str], entry: dict[str, Any], name: str) -> tuple[list[str], dict[str, Any]]:
        long_context = "long_context" in entry["id"]
        result: tuple[list[str], dict[str, Any]] = self.runner.execute_multi_turn_func_call(
            calls, entry["initial_config"], entry["involved_classes"], name, entry["id"], long_context=long_context, is_evaL_run=True
        )
        return result

    def _packed(self, instances: dict[str, Any]) -> dict[str, Any]:
        return {"state": base64.b64encode(pickle.dumps(instances, protocol=5)).decode("ascii"), "view": self._view(instances)}

    def _unpacked(self, state: str) -> dict[str, Any]:
        allowed = PICKLED | {(kind.__module__, kind.__name__) for kind in self.classes.values()}
        allowed |= {(self.file_system.__name__, "File"), (self.file_system.__name__, "Directory")}

        class Unpickler(pickle.Unpickler):
            def find_class(self, module_name: str, global_name: str, /) -> Any:
                if (module_name, global_name) not in allowed:
                    raise pickle.UnpicklingError(f"a state holds {module_name}.{global_name}, which no state of this world holds")
                return super().find_class(module_name, global_name)

        instances: dict[str, Any] = Unpickler(io.BytesIO(base64.b64decode(state))).load()
        return instances

    def _view(self, instances: dict[str, Any]) -> dict[str, Any]:
        """Every attribute by class; those that begin with an underscore steer later answers but are not compared by the checker."""
        return {
            name: {
                key: self.plain(value) if key != "_current_dir" else _path(value)
                for key, value in vars(instance).items()
                if key != "_api_description"
            }
            for name, instance in instances.items()
        }

    def plain(self, value: Any) -> Any:
        """The value as JSON: trees by name, sets sorted, keys as text, numbers beyond JSON as text."""
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, int):
            return value if abs(value) <= SAFE_INTEGER else str(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if isinstance(value, self.file_system.File):
            return {"file": value.name, "content": value.content}
        if isinstance(value, self.file_system.Directory):
            return {"directory": value.name, "contents": self.plain(value.contents)}
        if isinstance(value, dict):
            texts = {key for key in value if isinstance(key, str)}
            return {
                key if isinstance(key, str) else str(key) if str(key) not in texts else f"{type(key).__name__}:{key}": self.plain(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.plain(item) for item in value]
        if isinstance(value, set | frozenset):
            return sorted((self.plain(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
        if isinstance(value, random.Random):
            return {"random": hashlib.sha256(repr(value.getstate()).encode()).hexdigest()}
        return str(value)


def _whole(config: Any) -> Any:
    """The scenario with integers that are too large for the ledger's JSON as integers again."""
    if isinstance(config, dict):
        if config.keys() == {"$integer"}:
            return int(config["$integer"])
        return {key: _whole(item) for key, item in config.items()}
    return [_whole(item) for item in config] if isinstance(config, list) else config


def _path(directory: Any) -> list[str]:
    names: list[str] = []
    while directory is not None:
        names.append(directory.name)
        directory = directory.parent
    return names[::-1]


def _as_text(result: Any) -> str:
    """The result written as the leaderboard's own harness writes it."""
    if isinstance(result, str):
        return result
    if isinstance(result, dict):
        try:
            return json.dumps(result)
        except (TypeError, ValueError):
            return str(result)
    return str(result)


def _fits(function: Any, arguments: dict[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError:
        return False
    return True


def _confine() -> None:
    """Limits what code in this process can do: memory, no file writes, no programs, no network."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes or event.startswith(REFUSED_EVENTS):
            raise PermissionError(f"{event} is not allowed here")

    sys.addaudithook(refuse)


def _answer_and_exit(backend: Backend, line: bytes, pipe: int) -> NoReturn:
    """Runs in the forked child: writes the reply to the pipe and ends, whatever the request did."""
    reply: dict[str, Any] = {}
    with os.fdopen(pipe, "wb") as out:
        try:
            _confine()
            reply = {"ok": backend.answer(json.loads(line))}
        finally:
            if not reply:
                reply = {"failed": "".join(traceback.format_exc(limit=-3))[-2000:]}
            out.write(json.dumps(reply).encode())
            out.flush()
            os._exit(0)


def _answer(backend: Backend, line: bytes, private: tuple[int, ...]) -> bytes:
    """The reply line to a request line, made by a child that is killed at the request's time limit."""
    limit_s = float(json.loads(line)["limit_s"])
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        for descriptor in (reading, *private):
            os.close(descriptor)
        _answer_and_exit(backend, line, writing)
    os.close(writing)
    deadline = time.monotonic() + limit_s
    parts: list[bytes] = []
    late = False
    while not late:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        late = not ready
        part = os.read(reading, 1 << 20) if ready else b""
        if not part:
            break
        parts.append(part)
    os.close(reading)
    if late:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if late:
        return json.dumps({"failed": f"no answer within the time limit of {limit_s:g} s"}).encode()
    return b"".join(parts) or json.dumps({"failed": f"the child ended with status {status} and no answer"}).encode()


def serve(unpacked: str) -> None:
    """Answers request lines from standard input until it closes; prints of the wheel go to standard error."""
    time.tzset()
    requests: IO[bytes] = os.fdopen(os.dup(0), "rb")
    replies: IO[bytes] = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    backend = Backend(unpacked)
    # Objects outside the collector's reach are not touched by it, so children share more of the parent's pages.
    gc.freeze()
    for line in requests:
        replies.write(_answer(backend, line, (requests.fileno(), replies.fileno())) + b"\n")
        replies.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
