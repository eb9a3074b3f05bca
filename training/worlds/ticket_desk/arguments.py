"""The check of a tool call's arguments against the part of JSON Schema that the desk's tools use. Pure."""

import json
import re
from collections.abc import Mapping
from typing import Any

from training.worlds.ticket_desk.state import TIME_PATTERN, parse_time

LOG_CHARS = 4000


def ascii_text(value: Any, limit: int) -> str:
    """JSON text in ASCII, cut to `limit` characters: a sampled argument may hold lone surrogates or numbers with no canonical form."""
    try:
        text = json.dumps(value if not isinstance(value, Mapping) else dict(value), sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        text = f"<{type(value).__name__} without JSON form>"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def fault(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    """What is wrong with `value` under the part of JSON Schema that the tools use, or None."""
    allowed = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if value is None and "null" in allowed:
        return None
    if "object" in allowed:
        return _object_fault(value, schema, place)
    if "array" in allowed:
        return _array_fault(value, schema, place)
    if "number" in allowed:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not schema["minimum"] <= value <= schema["maximum"]:
            return f"{place} must be a number from {schema['minimum']} to {schema['maximum']}; seen {ascii_text(value, 60)}"
        return None
    return _text_fault(value, schema, place)


def _object_fault(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    names = ", ".join(schema["properties"])
    if not isinstance(value, Mapping):
        return f"{place} must be an object with {names}; seen {ascii_text(value, 60)}"
    for name in schema.get("required", []):
        if name not in value:
            return f"{place}.{name} is missing"
    if len(value) < schema.get("minProperties", 0):
        return f"{place} is empty; give one or more of {names}"
    for name, item in value.items():
        if name not in schema["properties"]:
            return f"{place} takes no {ascii_text(name, 60)}; it takes {names}"
        if (found := fault(item, schema["properties"][name], f"{place}.{name}")) is not None:
            return found
    return None


def _array_fault(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    least, most = schema["minItems"], schema["maxItems"]
    if not isinstance(value, list | tuple) or not least <= len(value) <= most:
        return f"{place} must be a list of {least} to {most} texts; seen {ascii_text(value, 60)}"
    faults = (fault(item, schema["items"], f"{place}[{index}]") for index, item in enumerate(value))
    return next((found for found in faults if found is not None), None)


def _text_fault(value: Any, schema: Mapping[str, Any], place: str) -> str | None:
    if not isinstance(value, str):
        return f"{place} must be text; seen {ascii_text(value, 60)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{place} must be one of {', '.join(schema['enum'])}; seen {ascii_text(value, 60)}"
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", LOG_CHARS):
        return f"{place} must have {schema.get('minLength', 0)} to {schema.get('maxLength', LOG_CHARS)} characters; seen {len(value)}"
    if "\x00" in value or any("\ud800" <= char <= "\udfff" for char in value):
        return f"{place} must be plain text without NUL or lone surrogates; seen {ascii_text(value, 60)}"
    if "pattern" not in schema:
        return None
    if not re.fullmatch(schema["pattern"], value):
        wanted = "a time such as 2026-03-02T09:00:00Z" if schema["pattern"] == TIME_PATTERN else "one e-mail address"
        return f"{place} must be {wanted}; seen {ascii_text(value, 60)}"
    if schema["pattern"] == TIME_PATTERN:
        try:
            parse_time(value)
        except ValueError:
            return f"{place} names no real date; seen {ascii_text(value, 60)}"
    return None
