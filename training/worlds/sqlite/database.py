"""Databases in memory: bytes in, guarded statements, canonical rows and bytes out. Touches no file."""

import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from typing import Any, Literal

import orjson

from ledger.canonical import MAX_INT, canonical_bytes, unsuspicious
from ledger.errors import BundleError, WorldFailed
from training.worlds.sqlite.definition import Limits

Access = Literal["read", "write"]
Rows = dict[str, dict[str, dict[str, Any]]]
"""Table to primary key to column to value."""

PAGE_BYTES = 1024
HEAP_BYTES = 1 << 30
_STRIDE = 1000
_DATES = ("date", "time", "datetime", "julianday", "strftime", "unixepoch")
_UNREPEATABLE = {"random": 0, "randomblob": 1, "current_date": 0, "current_time": 0, "current_timestamp": 0}
_TABLE_FUNCTIONS = {"json_each", "json_tree"}
_PLAIN_FUNCTIONS = """
    -> ->> abs avg changes char coalesce count cume_dist dense_rank first_value format glob group_concat hex ifnull iif instr json
    json_array json_array_length json_each json_extract json_group_array json_group_object json_insert json_object json_patch
    json_quote json_remove json_replace json_set json_tree json_type json_valid lag last_insert_rowid last_value lead length like
    likelihood likely lower ltrim max min nth_value ntile nullif percent_rank printf quote rank replace round row_number rtrim sign
    substr substring sum total trim typeof unicode unlikely upper zeroblob
"""
_FUNCTIONS = {*_DATES, *_PLAIN_FUNCTIONS.split()}
_BUILDING_STEPS = 50_000_000
_NEVER = {
    sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA, sqlite3.SQLITE_CREATE_VTABLE, sqlite3.SQLITE_DROP_VTABLE,
}  # fmt: skip
_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_WRITES = {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE}


class OutOfSteps(Exception):
    """A statement needs more instructions than one call may take."""


class Guarded:
    """A connection on which nothing but reading and changing rows is possible: the authorizer refuses the rest, counted steps end a
    statement that does not end, and functions that a replay could not repeat fail.

    Args:
        connection: a database in memory.
        limits: what everything that is executed here may take together.
    """

    def __init__(self, connection: sqlite3.Connection, limits: Limits) -> None:
        self._connection, self._limits = connection, limits
        self._steps = 0
        self._deadline = time.monotonic() + limits.seconds
        self._stopped_by: Literal["steps", "seconds"] | None = None
        self._access: Access = "read"
        self._tables = _readable(connection)
        for name, count in _UNREPEATABLE.items():
            connection.create_function(name, count, _refused(name))
        for name in _DATES:
            connection.create_function(name, -1, _dated(name), deterministic=True)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.value_bytes)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.setlimit(sqlite3.SQLITE_LIMIT_VDBE_OP, 25_000)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200)
        connection.execute(f"PRAGMA max_page_count = {max(1, limits.database_bytes // _page_bytes(connection))}")
        for pragma in ("temp_store = MEMORY", f"hard_heap_limit = {HEAP_BYTES}"):
            connection.execute(f"PRAGMA {pragma}")
        for function in _TABLE_FUNCTIONS:
            # Their first use declares a table, which the authorizer would refuse.
            connection.execute(f"SELECT 1 FROM {function}('[]')")
        connection.set_authorizer(self._authorize)
        connection.set_progress_handler(self._progress, _STRIDE)

    def rows(self, sql: str, values: Mapping[str, Any], *, access: Access = "read") -> tuple[list[dict[str, Any]], bool]:
        """The rows of one statement as JSON objects, and whether there were more than the limit.

        Raises:
            sqlite3.Error: the statement is refused, wrong or breaks a constraint.
            OutOfSteps: it takes too many instructions.
            WorldFailed: it outran its seconds.
        """
        self._access = access
        with closing(self._connection.cursor()) as cursor:
            try:
                cursor.execute(sql, values)
                names = [column[0] for column in cursor.description or ()]
                found = cursor.fetchmany(self._limits.rows + 1) if names else []
            except sqlite3.OperationalError as error:
                self._stop(error)
                raise
            shown = [dict(zip(names, map(value_json, row), strict=True)) for row in found[: self._limits.rows]]
            return shown, len(found) > self._limits.rows

    def _stop(self, error: sqlite3.OperationalError) -> None:
        if self._stopped_by == "steps":
            raise OutOfSteps(f"the statement takes more than {self._limits.steps} steps") from error
        if self._stopped_by == "seconds":
            raise WorldFailed(f"a statement took longer than {self._limits.seconds:g} s") from error

    def _progress(self) -> int:
        self._steps += _STRIDE
        if self._steps > self._limits.steps:
            self._stopped_by = "steps"
        elif time.monotonic() > self._deadline:
            self._stopped_by = "seconds"
        return self._stopped_by is not None

    def _authorize(self, action: int, first: str | None, second: str | None, database: str | None, origin: str | None) -> int:
        allowed = action in _READS or (self._access == "write" and action in _WRITES)
        if action == sqlite3.SQLITE_FUNCTION:
            allowed = (second or "").lower() in _FUNCTIONS
        elif action == sqlite3.SQLITE_READ:
            # A table that is only counted is read with an empty column name.
            allowed = not second or (first or "").lower() in self._tables
        elif action in _WRITES:
            allowed = allowed and (first or "").lower() in self._tables
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


@contextmanager
def opened(data: bytes) -> Iterator[sqlite3.Connection]:
    """A connection to the database in `data`, without transactions of its own; what it changes is kept only by `serialize`.

    Raises:
        WorldFailed: the bytes are no database.
    """
    with closing(empty()) as connection:
        try:
            connection.deserialize(data)
            connection.execute("SELECT count(*) FROM sqlite_master")
            connection.execute("PRAGMA foreign_keys = ON")
        except sqlite3.DatabaseError as error:
            raise WorldFailed(f"{len(data)} bytes are no database: {error}") from error
        yield connection


def empty() -> sqlite3.Connection:
    """A connection to a new database in memory."""
    connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    connection.text_factory = _text
    return connection


@contextmanager
def building(data: bytes | None = None) -> Iterator[sqlite3.Connection]:
    """A connection to a database, new or in `data`, in which tables may be made and filled and nothing outside of it can be reached."""
    with closing(empty()) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        if data is not None:
            connection.deserialize(data)
        steps = iter(range(_BUILDING_STEPS // _STRIDE))
        connection.set_progress_handler(lambda: next(steps, None) is None, _STRIDE)
        connection.set_authorizer(_authorize_building)
        yield connection


def build(schema: Sequence[str], rows: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> bytes:
    """The bytes of a database of this schema with these rows, the same for the same rows in any order.

    Args:
        schema: CREATE statements; tables are made first, and triggers, indices and views after the rows are in.
        rows: as `rows_of` gives them.
    Raises:
        BundleError: a statement fails, a row does not fit its table, or a foreign key leads nowhere.
    """
    if not isinstance(rows, Mapping) or not all(isinstance(table, Mapping) for table in rows.values()):
        raise BundleError(f"rows are {str(rows)[:80]}; allowed: an object of tables, each an object of rows")
    with building() as connection:
        tables = [sql for sql in schema if _is_table(sql)]
        try:
            connection.execute("BEGIN")
            for sql in tables:
                connection.execute(sql)
            for table in sorted(rows):
                _fill(connection, table, rows[table])
            for sql in schema:
                if not _is_table(sql):
                    connection.execute(sql)
            connection.execute("COMMIT")
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise BundleError(f"the rows do not make a database: {error}") from error
        connection.set_authorizer(None)
        broken = connection.execute("PRAGMA foreign_key_check").fetchone()
        if broken is not None:
            raise BundleError(f"table {broken[0]!r} has a row that refers to no row of {broken[2]!r}")
        return connection.serialize()


def schema_of(connection: sqlite3.Connection) -> list[str]:
    """The CREATE statements of a database, in the order of their making."""
    return [
        sql
        for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")
    ]


def primary_keys(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Table name to the columns of its primary key.

    Raises:
        BundleError: a table has no primary key, or one that may be NULL or is neither TEXT nor INTEGER, so that rows have no sure name.
    """
    connection.set_authorizer(None)
    keys = {}
    for (table,) in connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    ):
        columns = sorted((c for c in connection.execute(f"PRAGMA table_info({_quoted(table)})") if c[5]), key=lambda column: column[5])
        alone = len(columns) == 1 and columns[0][2].upper() == "INTEGER"
        if not columns or any(c[2].upper() not in ("TEXT", "INTEGER") or not (c[3] or alone) for c in columns):
            raise BundleError(f"table {table!r} needs a primary key of TEXT NOT NULL or INTEGER columns; seen {[c[1:3] for c in columns]}")
        keys[str(table)] = tuple(str(column[1]) for column in columns)
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'").fetchone():
        keys["sqlite_sequence"] = ("name",)
    return keys


def columns_of(connection: sqlite3.Connection, table: str) -> list[str]:
    """The columns of a table, in its order."""
    return [str(column[0]) for column in connection.execute(f"SELECT * FROM {_quoted(table)} LIMIT 0").description]


def rows_of(connection: sqlite3.Connection, keys: Mapping[str, Sequence[str]]) -> Rows:
    """All rows, each under its primary key as text, with the columns in the table's order.

    Raises:
        WorldFailed: two rows have one key.
    """
    tables: Rows = {}
    for table, key in keys.items():
        cursor = connection.execute(f"SELECT * FROM {_quoted(table)}")
        names = [column[0] for column in cursor.description]
        at = [names.index(column) for column in key]
        found: dict[str, dict[str, Any]] = {}
        for row in cursor:
            values = dict(zip(names, map(value_json, row), strict=True))
            if found.setdefault(key_text([row[index] for index in at]), values) is not values:
                raise WorldFailed(f"table {table!r} has two rows with key {[row[index] for index in at]}")
        tables[table] = dict(sorted(found.items()))
    return tables


def rows_bytes(rows: Rows) -> bytes:
    """Canonical bytes of `rows_of`; its values are canonical already, which saves the walk unless the text looks otherwise."""
    data = orjson.dumps(rows, option=orjson.OPT_SORT_KEYS)
    return data if unsuspicious(data) else canonical_bytes(rows, allow_nul=True)


def key_text(values: Sequence[Any]) -> str:
    """A primary key as one text: the value itself, or the JSON array of several."""
    return str(values[0]) if len(values) == 1 else json.dumps(list(values), separators=(",", ":"), ensure_ascii=False)


def value_json(value: Any) -> Any:
    """A SQLite value as canonical JSON: blobs, integers beyond 2^53 and infinite numbers as an object that says so."""
    if isinstance(value, bytes):
        return {"$blob": value.hex()}
    if isinstance(value, int) and abs(value) > MAX_INT:
        return {"$integer": str(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$real": str(value)}
    return value


def _from_json(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    ((kind, text),) = value.items()
    if kind == "$blob":
        return bytes.fromhex(text)
    return int(text) if kind == "$integer" else float(text)


def _authorize_building(action: int, first: str | None, second: str | None, database: str | None, origin: str | None) -> int:
    refused = action in _NEVER or (action == sqlite3.SQLITE_FUNCTION and second in ("load_extension", *_UNREPEATABLE))
    return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK


def _fill(connection: sqlite3.Connection, table: str, rows: Mapping[str, Mapping[str, Any]]) -> None:
    if table == "sqlite_sequence":
        connection.execute("DELETE FROM sqlite_sequence")
    for _, row in sorted(rows.items()):
        columns, marks = ", ".join(map(_quoted, row)), ", ".join("?" * len(row))
        connection.execute(f"INSERT INTO {_quoted(table)} ({columns}) VALUES ({marks})", [_from_json(value) for value in row.values()])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _is_table(sql: str) -> bool:
    return sql.split(None, 2)[1].upper() == "TABLE"


def _readable(connection: sqlite3.Connection) -> set[str]:
    """Lower-case names of the tables and views that statements may name; SQLite's own are not among them."""
    names = {str(name).lower() for _, name, *_ in connection.execute("PRAGMA table_list")}
    return {name for name in names if not name.startswith("sqlite_")} | _TABLE_FUNCTIONS


def _page_bytes(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA page_size").fetchone()[0])


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _refused(name: str) -> Callable[..., Any]:
    def refuse(*_: Any) -> Any:
        raise ValueError(f"{name} is not repeatable")

    return refuse


@lru_cache(maxsize=len(_DATES))
def _dated(name: str) -> Callable[..., Any]:
    """SQLite's own date function for every argument but the ones that ask the machine for its clock or time zone."""

    def dated(*values: Any) -> Any:
        words = [str(value).strip().lower() for value in values]
        if len(values) == (1 if name == "strftime" else 0) or {"now", "localtime", "utc"} & set(words):
            raise ValueError(f"{name}: the machine's clock and time zone are no part of the state")
        with closing(sqlite3.connect(":memory:")) as plain:
            return plain.execute(f"SELECT {name}({', '.join('?' * len(values))})", values).fetchone()[0]

    return dated
