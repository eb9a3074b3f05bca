"""Program that holds one generated class inside a sandbox and answers calls on it. Standard library only.

A state comes with every request and goes back with its answer; the class's module is executed anew for each, so that nothing of a
request is left for the next. One JSON object a line: `describe`, `reset`, `call`. What fails by the class's own fault as a world is
answered with `failed`; what a call raises is an observation.
"""

import inspect
import json
import math
import os
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from training.worlds.python_class.schemas import tool_schemas

MODULE = "generated_world"
_MAX_INT = 2**53


class Broken(Exception):
    """The class is no world: its state is no JSON, or it cannot be built."""


def attributes_of(instance: object) -> dict[str, Any]:
    """The state of an instance: its attributes."""
    state = dict(vars(instance))
    for path, value in places(state, "self"):
        if isinstance(value, float) and not math.isfinite(value):
            raise Broken(f"{path} is {value}; a state holds finite numbers")
        if type(value) is int and abs(value) > _MAX_INT:
            raise Broken(f"{path} is an integer beyond 2^53")
        if type(value) not in (str, int, float, bool, type(None), list, dict):
            raise Broken(f"{path} is a {type(value).__name__}; a state holds JSON: dict with text keys, list, str, int, float, bool, None")
    return state


def places(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """All values within a value with where they are."""
    yield path, value
    if type(value) is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise Broken(f"{path} has the key {key!r}; keys of a state are text")
            yield from places(item, f"{path}.{key}")
    elif type(value) is list:
        for index, item in enumerate(value):
            yield from places(item, f"{path}[{index}]")


def loaded(code: types.CodeType) -> type:
    """The world's class in a module of its own: the one with public methods that no other such class derives from."""
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    exec(code, module.__dict__)
    own = [value for name, value in vars(module).items() if inspect.isclass(value) and value.__module__ == MODULE and name[0] != "_"]
    usable = [cls for cls in own if tools_of(cls)]
    worlds = [cls for cls in usable if not any(other is not cls and issubclass(other, cls) for other in usable)]
    if len(worlds) != 1:
        names = ", ".join(cls.__name__ for cls in worlds) or "none"
        raise Broken(f"a world is one class with public methods; the source has {len(worlds)}: {names}")
    return worlds[0]


def tools_of(cls: type) -> dict[str, Callable[..., Any]]:
    """Public methods by name, in the order of the source."""
    own = [base for base in reversed(cls.__mro__) if base.__module__ == MODULE]
    return {n: m for base in own for n, m in vars(base).items() if inspect.isfunction(m) and not n.startswith("_")}


def built(cls: type, state: dict[str, Any] | None) -> object:
    """An instance with the attributes of an initial state, made as EnvScaler makes it: constructor with the state, then each attribute."""
    takes = [p for p in inspect.signature(cls).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    try:
        instance = cls(json.loads(json.dumps(state or {}))) if takes else cls()
        for name, value in (state or {}).items():
            setattr(instance, name, value)
    except Exception as error:
        raise Broken(f"{cls.__name__} cannot be built: {type(error).__name__}: {error}") from error
    return instance


def restored(cls: type, attributes: dict[str, Any]) -> object:
    """An instance with exactly these attributes; its constructor does not run."""
    instance: object = object.__new__(cls)
    vars(instance).update(attributes)
    return instance


def describe(cls: type, request: dict[str, Any]) -> dict[str, Any]:
    """Name, docstring and tools of the class, and the attributes of an instance without an initial state, if one can be built."""
    try:
        attributes = attributes_of(built(cls, None))
    except Broken:
        attributes = None
    return {"class": cls.__name__, "doc": inspect.getdoc(cls) or "", "tools": tool_schemas(tools_of(cls)), "attributes": attributes}


def reset(cls: type, request: dict[str, Any]) -> dict[str, Any]:
    """The state of a new instance."""
    instance, drawn = drawing(request, lambda: built(cls, request["state"]))
    return {"attributes": attributes_of(instance), "draws": drawn}


def call(cls: type, request: dict[str, Any]) -> dict[str, Any]:
    """The state after a call, and what the policy sees; a call that raises leaves the state as it was."""
    method = tools_of(cls).get(request["name"])
    if method is None:
        return refusal(f"Unknown tool {request['name']!r}; there are {', '.join(tools_of(cls))}.", "unknown_tool")
    instance = restored(cls, request["attributes"])
    try:
        inspect.signature(method).bind(instance, **request["arguments"])
    except TypeError as error:
        return refusal(f"Invalid arguments for {request['name']}: {error}.", "invalid_arguments")
    try:
        result, drawn = drawing(request, lambda: method(instance, **request["arguments"]))
        content = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=repr)
    except MemoryError:
        raise
    except Exception as error:
        return refusal(f"{type(error).__name__}: {error}", "tool_error")
    return {"attributes": attributes_of(instance), "draws": drawn, "content": content, "error_class": None}


def refusal(content: str, error_class: str) -> dict[str, Any]:
    """An answer that leaves the state as it was."""
    return {"attributes": None, "content": content, "error_class": error_class}


def drawing(request: dict[str, Any], act: Callable[[], Any]) -> tuple[Any, int]:
    """What `act` gives with `random` seeded by the state, and how often the state was drawn from since the reset."""
    random.seed(f"{request['seed']}:{request['draws']}")
    before = random.getstate()
    made = act()
    return made, request["draws"] + (random.getstate() != before)


def main() -> None:
    """Answers requests until the input ends."""
    # Printing is the class's own matter: what it prints must not be read as an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with open(os.path.join(os.environ["TASK"], "world_source.py"), encoding="utf-8") as file:
        code = compile(file.read(), "world_source.py", "exec")
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            cls = loaded(code)
            answer = {"describe": describe, "reset": reset, "call": call}[request["op"]](cls, request)
            text = json.dumps(answer, ensure_ascii=True)
        except Broken as broken:
            text = json.dumps({"failed": str(broken)})
        except (MemoryError, KeyboardInterrupt):
            raise
        except BaseException as error:
            text = json.dumps({"failed": f"{type(error).__name__}: {error}"})
        answers.write(text.encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
