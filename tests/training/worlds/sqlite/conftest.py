"""A small world in which the policy writes its own SQL, and the shop."""

from collections.abc import Callable
from typing import Any

import pytest

from training.worlds import Observation, ToolCall
from training.worlds.sqlite import EXAMPLES, SqliteState, SqliteWorld, read_definition
from training.worlds.sqlite.definition import Definition

SCHEMA = """
CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT, size, seen_on TEXT DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE tags (note_id INTEGER NOT NULL REFERENCES notes (id), tag TEXT NOT NULL, PRIMARY KEY (note_id, tag));
"""
SEED = "INSERT INTO notes VALUES (1, 'one', 1, NULL), (2, 'two', 2.5, NULL); INSERT INTO tags VALUES (1, 'a'), (1, 'b'), (2, 'a');"


def definition(**changes: Any) -> Definition:
    """The world `notes`, in which the policy reads and writes by its own SQL, with `changes` to its definition."""
    query = {"type": "string", "max_length": 20_000}
    tools = [
        {"name": "read", "description": "read", "arguments": {"sql": query}, "statement": "sql"},
        {"name": "write", "description": "write", "arguments": {"sql": query}, "statement": "sql", "writes": True},
    ]
    fields = {"name": "notes", "system": "s", "licence": "Apache-2.0", "tools": tools, "schema_sql": SCHEMA, "seed_sql": SEED}
    return Definition.model_validate(fields | changes)


@pytest.fixture(scope="session")
def notes() -> SqliteWorld:
    """The world `notes`."""
    return SqliteWorld(definition())


@pytest.fixture(scope="session")
def shop() -> SqliteWorld:
    """The example shop."""
    return SqliteWorld(read_definition(EXAMPLES / "shop"))


@pytest.fixture(scope="session")
def write(notes: SqliteWorld) -> Callable[[str], tuple[SqliteState, Observation]]:
    """The state and the answer after one statement of the policy's own on the seed rows."""
    return lambda sql: notes.call(notes.state_of(notes.seed_rows), ToolCall("write", {"sql": sql}))
