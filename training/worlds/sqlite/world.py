"""The world: a state is a database's bytes, so snapshot, restore and fork are exact, and two states are compared row by row."""

import hashlib
import json
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ledger.bundle import BundleDraft
from ledger.canonical import canonical_bytes
from ledger.errors import BundleError, WorldFailed
from training.worlds import Diff, Observation, Snapshot, ToolCall
from training.worlds.difference import differences
from training.worlds.runtime import Sandbox
from training.worlds.sqlite.calls import compile_tools, refusal, run
from training.worlds.sqlite.database import Rows, build, building, columns_of, opened, primary_keys, rows_bytes, rows_of, schema_of
from training.worlds.sqlite.definition import Definition, Tool
from training.worlds.sqlite.functions import Functions

_CODE = ("database.py", "calls.py", "functions.py", "functions_worker.py", "world.py")
_UNSTEADY = re.compile(r"\b(time|datetime|random|randomblob|uuid|secrets|urandom)\b")


@dataclass(frozen=True)
class SqliteState:
    """A database at one moment.

    Attributes:
        data: its bytes.
        keys: table to the columns of its primary key.
    """

    data: bytes
    keys: Mapping[str, Sequence[str]] = field(compare=False, repr=False)

    @cached_property
    def view_json(self) -> bytes:
        """Canonical bytes of all rows."""
        with opened(self.data) as connection:
            return rows_bytes(rows_of(connection, self.keys))

    @cached_property
    def digest(self) -> str:
        """Hex SHA-256 of all rows, in whatever order they were written."""
        return hashlib.sha256(self.view_json).hexdigest()


class SqliteWorld:
    """A world that is a schema, seed rows and tools in SQL.

    Args:
        definition: the world's files.
        sandbox: where tools that are functions run; None makes one for hostile code when there are any, and it must be closed then.
    Raises:
        BundleError: schema, rows or a tool's statement do not work.
    Source: Agent World Model, arXiv 2602.10090 (a scenario as SQLite schema, data and tools, verified by the difference of databases).
    """

    name = "sqlite"

    def __init__(self, definition: Definition, *, sandbox: Sandbox | None = None) -> None:
        self.definition = definition
        # A function that asks for the time or for chance may give other states when it is replayed.
        self.fidelity = "approximate" if _UNSTEADY.search(definition.functions_py) else "exact"
        try:
            with building() as connection:
                connection.executescript(definition.schema_sql)
                self.schema = schema_of(connection)
                connection.executescript(definition.seed_sql)
                self._keys = primary_keys(connection)
                self.seed_rows = rows_of(connection, self._keys)
                self._volatile = _volatile(definition, {table: columns_of(connection, table) for table in self._keys})
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise BundleError(f"world {definition.name!r}: its schema or seed rows fail: {error}") from error
        self._tools = {tool.name: tool for tool in definition.tools}
        compile_tools(definition, self.state_of(self.seed_rows).data)
        functional = any(tool.function for tool in definition.tools)
        self._functions = Functions(definition, sandbox or Sandbox("hostile")) if functional else None
        code = [(name, (Path(__file__).parent / name).read_text(encoding="utf-8")) for name in _CODE]
        parts = [*code, ("world.json", canonical_bytes(definition.model_dump(mode="json")).decode())]
        self.source = "\n".join(f"# file: {name}\n{text}" for name, text in parts)
        self.version = hashlib.sha256(self.source.encode()).hexdigest()

    def state_of(self, rows: Rows) -> SqliteState:
        """The state with exactly these rows.

        Raises:
            BundleError: they do not fit the schema.
        """
        return SqliteState(build(self.schema, rows), self._keys)

    def tools(self, draft: BundleDraft, *, turn: int) -> list[dict[str, Any]]:
        """OpenAI tool schemas of all tools; they are the same for every task and turn."""
        return [tool.schema_part() for tool in self.definition.tools]

    def reset(self, draft: BundleDraft, *, seed: int) -> SqliteState:
        """The initial state of the task; all randomness was spent when it was made, so `seed` does not matter.

        Raises:
            BundleError: the draft is for another world or its rows do not fit.
        """
        initial = draft.initial_state
        if draft.world != self.name or not isinstance(initial, Mapping) or initial.get("database") != self.definition.name:
            seen = initial.get("database") if isinstance(initial, Mapping) else None
            raise BundleError(f"bundle {draft.name!r} is for {draft.world}/{seen}; allowed: {self.name}/{self.definition.name}")
        if initial.get("schema") != self.schema:
            raise BundleError(f"bundle {draft.name!r} was made for another schema of {self.definition.name!r}")
        return self.state_of(initial["rows"])

    def call(self, state: SqliteState, call: ToolCall) -> tuple[SqliteState, Observation]:
        """The state after the call, and the answer; `state` itself is unchanged."""
        tool = self._tools.get(call.name)
        if tool is None:
            return state, refusal("unknown_tool", f"there are {', '.join(self._tools)}")
        data, observation = run(self.definition, tool, state.data, call.arguments, function=self._function(tool))
        return (state if data is state.data else SqliteState(data, self._keys)), observation

    def snapshot(self, state: SqliteState) -> Snapshot:
        """The database's bytes under the digest of its rows."""
        return Snapshot(state.digest, state.data)

    def restore(self, snapshot: Snapshot) -> SqliteState:
        """The state that was put to rest.

        Raises:
            WorldFailed: the bytes are no database of this schema, or its rows have another digest.
        """
        state = SqliteState(snapshot.data, self._keys)
        with opened(state.data) as connection:
            if schema_of(connection) != self.schema:
                raise WorldFailed(f"snapshot {snapshot.snapshot_id} has another schema than world {self.definition.name!r}")
        if state.digest != snapshot.snapshot_id:
            raise WorldFailed(f"snapshot {snapshot.snapshot_id} holds rows with digest {state.digest}")
        return state

    def fork(self, snapshot: Snapshot, n: int) -> list[SqliteState]:
        """`n` states, each equal to the snapshot; states are values, so a call on one leaves the others alone."""
        return [self.restore(snapshot)] * n

    def view(self, state: SqliteState) -> Any:
        """Every row as JSON: table, primary key, column."""
        return json.loads(state.view_json)

    def material(self, view: Any) -> Any:
        """The view without volatile tables and columns; rows whose primary key is volatile are counted by their content."""
        return {table: self._compared(table, rows) for table, rows in view.items() if table not in self._volatile}

    def diff(self, before: SqliteState, after: SqliteState) -> Diff:
        """Rows added, removed and columns changed, with pointers such as `/orders/O-1/status` as paths."""
        return differences(self.view(before), self.view(after))

    def digest(self, state: SqliteState) -> str:
        """Hex SHA-256 of the canonical form of the state's view."""
        return state.digest

    def close(self) -> None:
        """Ends the sandboxed process of the tools that are functions."""
        if self._functions is not None:
            self._functions.close()

    def _function(self, tool: Tool) -> Callable[[bytes, Mapping[str, Any]], tuple[bytes, Observation]] | None:
        name, functions = tool.function, self._functions
        if name is None or functions is None:
            return None
        return lambda data, arguments: functions.run(name, data, arguments, self.schema)

    def _compared(self, table: str, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        kept = {key: {name: value for name, value in row.items() if f"{table}.{name}" not in self._volatile} for key, row in rows.items()}
        if not any(f"{table}.{column}" in self._volatile for column in self._keys[table]):
            return kept
        counts: dict[str, int] = {}
        for row in kept.values():
            text = canonical_bytes(row, allow_nul=True).decode()
            counts[text] = counts.get(text, 0) + 1
        return dict(sorted(counts.items()))


def _volatile(definition: Definition, columns: Mapping[str, Sequence[str]]) -> set[str]:
    known = {*columns, *(f"{table}.{column}" for table, names in columns.items() for column in names)}
    for name in definition.volatile:
        if name not in known:
            raise BundleError(f"volatile {name!r} is no table or column of {definition.name!r}; it has {', '.join(sorted(columns))}")
    return {*definition.volatile, "sqlite_sequence"}
