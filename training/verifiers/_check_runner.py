"""Program that runs check functions on two states inside a sandbox and prints what each said, as JSON. Standard library only."""

import copy
import json
import os
import sys
from typing import Any


def outcome(code: str, initial_state: Any, final_state: Any) -> dict[str, Any]:
    """What one check says: `passed` true or false, or `error` when it crashes, is missing or answers neither."""
    namespace: dict[str, Any] = {"__name__": "check", "initial_state": copy.deepcopy(initial_state)}
    try:
        exec(compile(code, "check", "exec"), namespace)
        answer = namespace["check_func"](copy.deepcopy(final_state))
    except (MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"passed": answer} if isinstance(answer, bool) else {"error": f"answered {answer!r:.80}, allowed: True and False"}


def main() -> None:
    """Prints the outcomes of the checks that it reads."""
    # What a check prints must not be read as an outcome.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    given = json.load(sys.stdin)
    outcomes = [outcome(code, given["initial_state"], given["final_state"]) for code in given["checks"]]
    answers.write(json.dumps(outcomes).encode())
    answers.flush()


if __name__ == "__main__":
    main()
