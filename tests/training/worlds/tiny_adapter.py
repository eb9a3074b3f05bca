"""An adapter without a foreign package: a counter that can also misbehave in every way that a worker can."""

import os
import random
import subprocess
import sys
import time
from typing import Any


class Adapter:
    """A counter from the task's start; `options` are {"saves": bool, "broken": bool}."""

    def __init__(self, options: dict[str, Any]) -> None:
        if options.get("broken"):
            raise ImportError("no module named counter")
        self.count, self.log = 0, [""]

    def tools(self, task: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("add", "noise")]

    def reset(self, task: dict[str, Any], seed: int) -> str:
        print("what the environment prints is no answer")
        self.count = task["start"] + random.Random(seed).randrange(1000)
        return f"at {self.count}"

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, str | None]:
        if name == "add":
            self.count += arguments["by"]
            return f"at {self.count}", None
        if name == "noise":
            self.count = time.monotonic_ns() % 2**50
            return f"at {self.count}", None
        if name == "half_a_character":
            return "\ud800", None
        if name == "hang":
            time.sleep(60)
        if name == "leave_a_child":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            return str(child.pid), None
        if name == "die":
            print("the end is near", file=sys.stderr, flush=True)
            os._exit(7)
        if name == "quit":
            sys.exit(3)
        raise ZeroDivisionError(f"cannot {name}")

    def view(self) -> Any:
        return {"count": self.count}

    def save(self) -> str:
        return str(self.count)

    def load(self, data: str) -> None:
        self.count = int(data)

    def surroundings(self) -> dict[str, Any]:
        return {"environment": dict(os.environ), "folder": os.getcwd(), "path": sys.path}
