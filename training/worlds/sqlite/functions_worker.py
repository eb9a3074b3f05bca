"""Program that runs a world's Python tools over a database inside a sandbox, one JSON object a line. Standard library only.

The database comes with every request and goes back with its answer, and the tools' file is executed anew for each, so that nothing of a
request is left for the next. A tool is `def name(connection, **arguments)` and returns JSON; it refuses a call by raising `Refused`. What
else it raises ends this process.
"""

import base64
import json
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any


class Refused(Exception):
    """A call that the tool refuses, with what the policy reads."""

    def __init__(self, message: str, error_class: str = "tool_error") -> None:
        super().__init__(message)
        self.error_class = error_class


def answer(code: Any, request: dict[str, Any]) -> dict[str, Any]:
    """The reply to one request: the names of the tools, or what became of a call."""
    names: dict[str, Any] = {"__name__": "world_functions", "Refused": Refused}
    exec(code, names)
    if request["op"] == "names":
        return {"names": sorted(name for name, value in names.items() if callable(value) and not name.startswith("_"))}
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.deserialize(base64.b64decode(request["data"]))
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("BEGIN")
    try:
        said = names[request["name"]](connection, **request["arguments"])
        connection.execute("COMMIT")
    except Refused as refused:
        return {"refused": str(refused), "error_class": refused.error_class}
    except sqlite3.IntegrityError as error:
        return {"refused": str(error), "error_class": "tool_error"}
    data = base64.b64encode(connection.serialize()).decode() if connection.total_changes else None
    return {"answer": said, "data": data}


def main() -> None:
    """Answer lines until there are no more."""
    code = compile((Path(os.environ["TASK"]) / "functions.py").read_text(encoding="utf-8"), "functions.py", "exec")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        replies.write(json.dumps(answer(code, json.loads(line))) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
