"""Tools that are Python functions: they see the database and nothing else, and leave rows or nothing."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.errors import BundleError, WorldFailed
from tests.training.worlds.sqlite.conftest import definition
from training.worlds import Observation, ToolCall
from training.worlds.sqlite import SqliteState, SqliteWorld

SOURCE = """
import os, socket, sqlite3
seen = []

def shout(connection, *, id):
    row = connection.execute("SELECT body FROM notes WHERE id = ?", (id,)).fetchone()
    if row is None:
        raise Refused(f"no note {id}", "not_found")
    seen.append(id)
    connection.execute("UPDATE notes SET body = upper(body) WHERE id = ?", (id,))
    if row[0] == "two":
        raise Refused("two is not shouted")
    return {"body": row[0].upper(), "seen": len(seen)}

def read(connection):
    return [row[0] for row in connection.execute("SELECT body FROM notes ORDER BY id")]

def break_key(connection):
    connection.execute("INSERT INTO tags VALUES (99, 'x')")

def crash(connection):
    return 1 / 0

def hang(connection):
    while True:
        pass

def new_table(connection):
    connection.execute("CREATE TABLE more (id INTEGER PRIMARY KEY)")
    connection.execute("INSERT INTO more VALUES (1)")

def infinite(connection):
    return float("inf")

def spy(connection):
    found = {}
    for name, act in (("home", lambda: os.listdir(os.path.expanduser("~root"))), ("passwd", lambda: open("/etc/passwd").read()),
                      ("attach", lambda: sqlite3.connect("/etc/x.db").execute("CREATE TABLE t (a)")),
                      ("net", lambda: socket.create_connection(("127.0.0.1", 80), 1))):
        try:
            found[name] = str(act())
        except Exception as error:
            found[name] = type(error).__name__
    return found
"""
NAMES = ("shout", "read", "break_key", "crash", "hang", "new_table", "infinite", "spy")
Call = Callable[..., tuple[SqliteState, Observation]]


def world_of(source: str = SOURCE, names: tuple[str, ...] = NAMES) -> SqliteWorld:
    arguments = {"shout": {"id": {"type": "integer"}}}
    tools = [{"name": name, "description": "", "function": name, "arguments": arguments.get(name, {})} for name in names]
    return SqliteWorld(definition(tools=tools, functions_py=source, limits={"seconds": 0.5}))


@pytest.fixture(scope="module")
def world() -> Iterator[SqliteWorld]:
    opened = world_of()
    yield opened
    opened.close()


@pytest.fixture
def call(world: SqliteWorld) -> Call:
    start = world.state_of(world.seed_rows)
    return lambda name, **arguments: world.call(start, ToolCall(name, arguments))


def test_a_function_changes_rows_answers_json_and_keeps_nothing(world: SqliteWorld, call: Call) -> None:
    for _ in range(2):
        state, observation = call("shout", id=1)
        assert observation == Observation('{"body":"ONE","seen":1}')
        assert [(change.path, change.after) for change in world.diff(world.state_of(world.seed_rows), state).changes] == [
            ("/notes/1/body", "ONE")
        ]
    assert call("read")[1] == Observation('["one","two"]')
    assert world.fidelity == "exact"
    assert world_of(SOURCE + "import random\n").fidelity == "approximate"


def test_a_refused_or_impossible_call_leaves_the_rows(world: SqliteWorld, call: Call) -> None:
    start = world.digest(world.state_of(world.seed_rows))
    for name, arguments, error_class in (
        ("shout", {"id": 9}, "not_found"),
        ("shout", {"id": 2}, "tool_error"),
        ("shout", {"id": "1"}, "invalid_arguments"),
        ("break_key", {}, "tool_error"),
    ):
        state, observation = call(name, **arguments)
        assert (world.digest(state), observation.error_class) == (start, error_class), name


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("crash", "ZeroDivisionError"),
        ("hang", "no answer within"),
        ("new_table", "changed the schema"),
        ("infinite", "no canonical form|not JSON"),
    ],
)
def test_a_function_that_breaks_is_the_worlds_failure_and_the_next_call_works(call: Call, name: str, told: str) -> None:
    with pytest.raises(WorldFailed, match=f"(?s){told}"):
        call(name)
    assert call("read")[1].error_class is None


def test_a_function_reaches_neither_files_nor_network(call: Call) -> None:
    found: dict[str, Any] = json.loads(call("spy")[1].content)
    assert found["home"] in ("PermissionError", "FileNotFoundError", "[]")
    assert "root:" not in found["passwd"]
    assert found["attach"] == "OperationalError"
    assert found["net"].endswith("Error")
    assert not Path("/etc/x.db").exists()


def test_a_tool_has_one_form_and_its_function_must_be_there() -> None:
    with pytest.raises(BundleError, match="tool 'absent' is function 'absent'; functions.py has"):
        world_of(names=("absent",))
    with pytest.raises(ValueError, match="either SQL"):
        definition(tools=[{"name": "both", "description": "", "function": "read", "answer": "SELECT 1"}])
    with pytest.raises(WorldFailed, match="SyntaxError"):
        world_of("def")
