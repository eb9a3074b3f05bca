"""Tool schemas from a class: names from its methods, types from annotations, words from docstrings. Standard library only; pure.

Runs inside the sandbox with the class.
"""

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_SECTION = re.compile(
    r"^(args|arguments|parameters|params|inputs?|returns?|raises|yields|examples?|notes?|constraints?|outputs?)\s*:\s*$", re.I
)
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\(([^)]*)\))?\s*:\s*(.*)$")
_FIELD = re.compile(r"^:param\s+(?:\w+\s+)?(\w+)\s*:\s*(.*)$")


def tool_schemas(tools: Mapping[str, Callable[..., Any]]) -> list[dict[str, Any]]:
    """OpenAI tool schemas of methods, in their order."""
    return [{"type": "function", "function": _function(name, method)} for name, method in tools.items()]


def _function(name: str, method: Callable[..., Any]) -> dict[str, Any]:
    text, described = _documented(method)
    hints = _hints(method)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        schema = json_schema(hints.get(parameter.name, Any))
        if described.get(parameter.name):
            schema = schema | {"description": described[parameter.name]}
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        elif isinstance(parameter.default, str | int | float | bool):
            schema = schema | {"default": parameter.default}
        properties[parameter.name] = schema
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"name": name, "description": text or name.replace("_", " "), "parameters": parameters}


def json_schema(annotation: Any) -> dict[str, Any]:
    """The JSON schema of an annotation; empty, which allows anything, for what has none."""
    if annotation in _PLAIN:
        return {"type": _PLAIN[annotation]}
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        options = [json_schema(argument) for argument in arguments]
        if all(set(option) == {"type"} for option in options):
            return {"type": [option["type"] for option in options]}
        return {"anyOf": options}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin is typing.Annotated or origin in (typing.Required, typing.NotRequired):
        return json_schema(arguments[0])
    if annotation in (list, tuple, set) or origin in (list, tuple, set):
        items = json_schema(arguments[0]) if arguments else {}
        return {"type": "array", "items": items} if items else {"type": "array"}
    if typing.is_typeddict(annotation):
        fields = typing.get_type_hints(annotation)
        properties = {name: json_schema(hint) for name, hint in fields.items()}
        return {"type": "object", "properties": properties, "required": sorted(annotation.__required_keys__)}
    if annotation is dict or origin is dict or (isinstance(origin, type) and issubclass(origin, Mapping)):
        values = json_schema(arguments[1]) if len(arguments) == 2 else {}
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
    return {}


def _hints(method: Callable[..., Any]) -> dict[str, Any]:
    """Annotations by parameter; those that cannot be read are left out, as if the parameter had none."""
    try:
        return typing.get_type_hints(method)
    except Exception:
        return {name: hint for name, hint in getattr(method, "__annotations__", {}).items() if not isinstance(hint, str)}


def _documented(method: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The docstring without its list of arguments, and the description of each argument (Google's or Sphinx's form)."""
    kept: list[str] = []
    described: dict[str, str] = {}
    section = current = ""
    for line in (inspect.getdoc(method) or "").splitlines():
        heading = _SECTION.match(line)
        if heading:
            section, current = heading[1].lower(), ""
        field = _FIELD.match(line.strip())
        entry = _ENTRY.match(line.strip().removeprefix("- "))
        if field:
            described[field[1]] = field[2]
        elif section in ("args", "arguments", "parameters", "params", "input", "inputs"):
            if entry and not heading:
                current = entry[1]
                described[current] = entry[3]
            elif current and line.strip():
                described[current] += " " + line.strip()
        elif not line.startswith(":"):
            kept.append(line)
    return "\n".join(kept).strip(), described
