"""The function documentation of the wheel, and the tool schemas made from it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ledger.errors import BundleError

WHEEL = "bfcl-eval==2026.3.23"
DATA = Path("bfcl_eval") / "data"
DOC_FILES = {
    "GorillaFileSystem": "gorilla_file_system.json",
    "MathAPI": "math_api.json",
    "MessageAPI": "message_api.json",
    "TicketAPI": "ticket_api.json",
    "TradingBot": "trading_bot.json",
    "TravelAPI": "travel_booking.json",
    "TwitterAPI": "posting_api.json",
    "VehicleControlAPI": "vehicle_control.json",
}
FunctionDoc = Mapping[str, Any]
FunctionDocs = Mapping[str, Sequence[FunctionDoc]]

_TYPES: Mapping[str, str | None] = {
    "string": "string", "integer": "integer", "float": "number", "number": "number", "boolean": "boolean",
    "array": "array", "list": "array", "tuple": "array", "dict": "object", "object": "object", "any": None,
}  # fmt: skip
_BOILERPLATE_END = "Tool description: "


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file that holds one a line.

    Raises:
        BundleError: the file is absent, so `path` is not in an unpacked wheel of the pinned version.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise BundleError(f"{path} is missing; the folder must be the unpacked wheel {WHEEL}") from error
    return [json.loads(line) for line in text.splitlines() if line.strip()]


@lru_cache(maxsize=4)
def load_docs(unpacked: Path) -> dict[str, list[dict[str, Any]]]:
    """The documented functions of each class, in the wheel's order; read once, for reading alone."""
    folder = unpacked / DATA / "multi_turn_func_doc"
    return {name: read_json_lines(folder / file) for name, file in DOC_FILES.items()}


def documented(docs: FunctionDocs, classes: Iterable[str]) -> dict[str, FunctionDoc]:
    """Function name to documentation for the given classes, in their order.

    Raises:
        BundleError: a class that the wheel does not document.
    """
    found: dict[str, FunctionDoc] = {}
    for name in classes:
        if name not in docs:
            raise BundleError(f"class {name!r} is none of {', '.join(sorted(docs))}")
        found.update((doc["name"], doc) for doc in docs[name])
    return found


def tool_schema(doc: FunctionDoc, *, brief: bool = False) -> dict[str, Any]:
    """The function as an OpenAI tool with JSON Schema types.

    Args:
        doc: one function's documentation.
        brief: leave out the paragraph about the whole API that every description of that API repeats.
    """
    description = str(doc["description"])
    if brief:
        description = description.rpartition(_BOILERPLATE_END)[2]
    return {"type": "function", "function": {"name": doc["name"], "description": description, "parameters": _schema(doc["parameters"])}}


def _schema(node: Mapping[str, Any]) -> dict[str, Any]:
    kind = node.get("type")
    if kind is not None and kind not in _TYPES:
        raise BundleError(f"parameter type {kind!r} is none of {', '.join(_TYPES)}")
    schema: dict[str, Any] = {key: value for key, value in node.items() if key not in ("type", "properties", "items")}
    if kind is not None and _TYPES[kind] is not None:
        schema["type"] = _TYPES[kind]
    if "properties" in node:
        schema["properties"] = {name: _schema(child) for name, child in node["properties"].items()}
    if "items" in node:
        schema["items"] = _schema(node["items"])
    return schema
