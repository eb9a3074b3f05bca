"""One call of a tool: arguments checked, then its SQL in one transaction over the state's bytes. Pure."""

import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from ledger.canonical import MAX_INT, canonical_bytes
from ledger.errors import BundleError, CanonicalError, WorldFailed
from training.worlds import Observation
from training.worlds.sqlite.database import Guarded, OutOfSteps, opened
from training.worlds.sqlite.definition import Argument, Definition, Tool

_SHOWN = 200


class _Refused(Exception):
    """The call is refused, and nothing of it stays."""

    def __init__(self, error_class: str, message: str) -> None:
        super().__init__(message)
        self.observation = refusal(error_class, message)


def refusal(error_class: str, message: str) -> Observation:
    """A refused call as the policy reads it."""
    return Observation(json.dumps({"error": error_class, "message": message}, separators=(",", ":")), error_class)


Function = Callable[[bytes, Mapping[str, Any]], tuple[bytes, Observation]]


def run(
    definition: Definition, tool: Tool, data: bytes, arguments: Mapping[str, Any], *, function: Function | None = None
) -> tuple[bytes, Observation]:
    """The database after the call, and the answer as compact JSON text; a refused call leaves the bytes as they were.

    Args:
        definition: the world.
        tool: one of its tools.
        data: the database.
        arguments: as the policy gave them.
        function: the tool itself, when it is no SQL.
    Raises:
        WorldFailed: the tool's own SQL is wrong or outran its limits.
    """
    fault = argument_fault(tool, arguments)
    if fault is not None:
        return data, refusal("invalid_arguments", fault)
    if function is not None:
        return function(data, arguments)
    values = {name: _bound(arguments.get(name)) for name in tool.arguments}
    changes = bool(tool.changes) or tool.writes
    with opened(data) as connection:
        connection.execute("BEGIN")
        guarded = Guarded(connection, definition.limits)
        try:
            rows, more = _own_sql(guarded, tool, values) if tool.statement else _tool_sql(guarded, tool, values)
        except _Refused as refused:
            return data, refused.observation
        connection.set_authorizer(None)
        connection.set_progress_handler(None, 0)
        try:
            connection.execute("COMMIT")
        except sqlite3.IntegrityError as error:
            return data, refusal("tool_error", str(error))
        return connection.serialize() if changes else data, _answer(tool, rows, more=more)


def compile_tools(definition: Definition, data: bytes) -> None:
    """Nothing, when every statement of every tool compiles under the authorizer.

    Raises:
        BundleError: one does not; the message names the tool and the statement.
    """
    for tool in definition.tools:
        values = dict.fromkeys(tool.arguments)
        own = [("read", check.sql) for check in tool.checks] + [("write", sql) for sql in tool.changes]
        for access, sql in [*own, *([("read", tool.answer)] if tool.answer else [])]:
            with opened(data) as connection:
                try:
                    Guarded(connection, definition.limits).rows(f"EXPLAIN {sql}", values, access="write" if access == "write" else "read")
                except (sqlite3.Error, sqlite3.Warning) as error:
                    raise BundleError(f"tool {tool.name!r}: {error}; in {sql.strip()!r}") from error


def argument_fault(tool: Tool, arguments: Mapping[str, Any]) -> str | None:
    """What is wrong with the arguments, or None."""
    for name in arguments:
        if name not in tool.arguments:
            return f"{tool.name} takes no {_shown(name)}; it takes {', '.join(tool.arguments) or 'nothing'}"
    for name, argument in tool.arguments.items():
        value = arguments.get(name)
        if value is None and argument.required:
            return f"{name} is missing"
        if value is not None and (fault := _value_fault(argument, value)) is not None:
            return f"{name} must be {fault}; seen {_shown(value)}"
    return None


def _tool_sql(guarded: Guarded, tool: Tool, values: Mapping[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    try:
        for check in tool.checks:
            if not guarded.rows(check.sql, values)[0]:
                raise _Refused(check.error, check.message.format_map(values))
        for sql in tool.changes:
            guarded.rows(sql, values, access="write")
        return guarded.rows(tool.answer, values) if tool.answer else ([], False)
    except sqlite3.IntegrityError as error:
        raise _Refused("tool_error", str(error)) from error
    except (sqlite3.Error, sqlite3.Warning, OutOfSteps, MemoryError) as error:
        raise WorldFailed(f"tool {tool.name!r} failed: {error}") from error


def _own_sql(guarded: Guarded, tool: Tool, values: Mapping[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    """The rows of the policy's own statement: whatever is wrong with it is the policy's mistake."""
    given = {name: value for name, value in values.items() if name != tool.statement}
    try:
        return guarded.rows(str(values[tool.statement or ""]), given, access="write" if tool.writes else "read")
    except (sqlite3.Error, sqlite3.Warning, OutOfSteps, ValueError) as error:
        raise _Refused("tool_error", str(error)) from error
    except MemoryError as error:
        raise _Refused("tool_error", "the statement takes more memory than is allowed") from error


def _answer(tool: Tool, rows: list[dict[str, Any]], *, more: bool) -> Observation:
    value: Any = {"rows": rows, "truncated": True} if more else {"rows": rows}
    if tool.one:
        value = rows[0] if rows else None
    elif not tool.answer and not tool.statement:
        value = {"done": True}
    return Observation(canonical_bytes(value, allow_nul=True).decode())


def _bound(value: Any) -> Any:
    if isinstance(value, list):
        return json.dumps(value)
    return int(value) if isinstance(value, bool) else value


def _value_fault(argument: Argument, value: Any) -> str | None:
    if argument.type == "boolean":
        return None if isinstance(value, bool) else "true or false"
    if argument.type == "array":
        texts = isinstance(value, list) and all(_plain(item, argument.max_length) for item in value)
        return None if texts and len(value) <= argument.max_length else f"a list of up to {argument.max_length} texts"
    if argument.type == "string":
        return _text_fault(argument, value)
    kinds = (int,) if argument.type == "integer" else (int, float)
    low, high = (-MAX_INT if argument.minimum is None else argument.minimum), (MAX_INT if argument.maximum is None else argument.maximum)
    fits = isinstance(value, kinds) and not isinstance(value, bool) and low <= value <= high
    return None if fits else f"{'an integer' if argument.type == 'integer' else 'a number'} from {low:g} to {high:g}"


def _text_fault(argument: Argument, value: Any) -> str | None:
    if not _plain(value, argument.max_length):
        return f"plain text of up to {argument.max_length} characters"
    if argument.enum and value not in argument.enum:
        return f"one of {', '.join(argument.enum)}"
    if argument.pattern and not re.fullmatch(argument.pattern, value):
        return f"of the form {argument.pattern}"
    return None


def _plain(value: Any, limit: int) -> bool:
    return isinstance(value, str) and len(value) <= limit and not any(char == "\x00" or "\ud800" <= char <= "\udfff" for char in value)


def _shown(value: Any) -> str:
    try:
        text = canonical_bytes(value, allow_nul=True).decode()
    except CanonicalError:
        text = f"<{type(value).__name__} without JSON form>"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
