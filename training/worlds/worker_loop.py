"""The program of a worker process: answers the host's JSON lines with the `Adapter` of one file until they end.

It imports nothing of this project. Started as `python -P -s -B worker_loop.py <adapter file>` by the Python of the foreign package's own
environment. A line is `{"op": …, …}`; the reply is `{"ok": …}` or `{"failed": {"class": …, "text": …}}`. The first is
`{"op": "hello", "options": …}`, which makes `Adapter(options)`. Every other `op` names a public method of the adapter and the further keys
are its arguments. Three have a fixed form: `reset(task, seed) -> str` and `call(name, arguments) -> (str, str | None)` give what the policy
sees (and why a call was refused), to which the loop adds `view() -> JSON`; so does `load(data)`, the way back from `save() -> str`, for
adapters that can save their state. What an adapter returns is made JSON by `plain`.
"""

import importlib.util
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
from typing import IO, Any

FILE_BYTES = 256 << 20
PARENT_CHECK_S = 1.0
SAFE_INTEGER = 2**53


def plain(value: Any) -> Any:
    """A foreign value as JSON that has a canonical form: arrays as lists, sets sorted, numbers beyond JSON and all else as text."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, int):
        return int(value) if abs(value) <= SAFE_INTEGER else str(value)
    if isinstance(value, float):
        return float(value) if value - value == 0.0 else str(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
    return str(value)


def _text(content: str) -> str:
    """The text with halves of characters, which have no UTF-8, written out."""
    return content.encode("utf-8", "backslashreplace").decode("utf-8")


def _adapter_class(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("adapter", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Pydantic and dataclasses look a class's module up by name.
    sys.modules["adapter"] = module
    spec.loader.exec_module(module)
    return module.Adapter


def _answer(adapter: Any, request: dict[str, Any]) -> Any:
    op = request.pop("op")
    if op.startswith("_"):
        raise ValueError(f"no operation {op!r}; allowed: public methods of the adapter")
    result = getattr(adapter, op)(**request)
    if op == "reset":
        return {"content": _text(result), "error_class": None, "view": adapter.view()}
    if op == "call":
        return {"content": _text(result[0]), "error_class": result[1], "view": adapter.view()}
    return {"view": adapter.view()} if op == "load" else result


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os.killpg(0, signal.SIGKILL)


def serve(path: str) -> None:
    """Answers request lines from standard input until it closes; what the foreign code prints goes to standard error."""
    requests: IO[bytes] = os.fdopen(os.dup(0), "rb")
    replies: IO[bytes] = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    adapter: Any = None
    for line in requests:
        try:
            request = json.loads(line)
            if request["op"] == "hello":
                adapter = _adapter_class(path)(request["options"])
                reply = json.dumps({"ok": None})
            else:
                reply = json.dumps({"ok": plain(_answer(adapter, request))})
        except BaseException as error:
            text = "".join(traceback.format_exception(error, limit=-4))[-3000:]
            reply = json.dumps({"failed": {"class": type(error).__name__, "text": text}})
        replies.write(reply.encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
