"""Nothing but the rows of one database can be reached by SQL, and a statement that does not end is ended."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.errors import BundleError, WorldFailed
from tests.training.worlds.sqlite.conftest import definition
from training.worlds import Observation, ToolCall
from training.worlds.sqlite import SqliteState, SqliteWorld, read_definition

Write = Callable[[str], tuple[SqliteState, Observation]]
ESCAPES = (
    "ATTACH DATABASE '{folder}/out.db' AS x",
    "ATTACH ':memory:' AS x",
    "DETACH DATABASE main",
    "VACUUM INTO '{folder}/out.db'",
    "VACUUM",
    "SELECT load_extension('{folder}/evil.so')",
    "PRAGMA writable_schema = ON",
    "PRAGMA database_list",
    "PRAGMA hard_heap_limit = 0",
    "PRAGMA max_page_count = 1000000",
    "SELECT * FROM pragma_table_info('notes')",
    "SELECT * FROM sqlite_master",
    "UPDATE sqlite_master SET sql = 'x'",
    "INSERT INTO sqlite_schema VALUES ('table', 'x', 'x', 1, 'x')",
    "CREATE TABLE more (id INTEGER PRIMARY KEY)",
    "CREATE TEMP TABLE more (id INTEGER PRIMARY KEY)",
    "CREATE VIRTUAL TABLE more USING fts5(body)",
    "CREATE TRIGGER t AFTER INSERT ON notes BEGIN DELETE FROM tags; END",
    "DROP TABLE notes",
    "ALTER TABLE notes ADD COLUMN more",
    "REINDEX",
    "ANALYZE",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT s",
    "SELECT readfile('/etc/passwd')",
    "SELECT writefile('{folder}/out', 'x')",
    "SELECT fts3_tokenizer('simple')",
    "SELECT sqlite_version()",
    "SELECT 1; DROP TABLE notes",
)
UNREPEATABLE = (
    "SELECT random()",
    "SELECT hex(randomblob(4))",
    "SELECT current_timestamp",
    "SELECT date('now')",
    "SELECT datetime(' NOW ')",
    "SELECT date()",
    "SELECT strftime('%s')",
    "SELECT julianday('2026-01-01', 'localtime')",
    "INSERT INTO notes (id) VALUES (3)",
)
RUNAWAYS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n, n AS m",
    "WITH RECURSIVE n(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM n) SELECT length(s) FROM n",
    "WITH RECURSIVE n(i, s) AS (SELECT 1, printf('%.90000c', 'x') UNION ALL SELECT i + 1, s FROM n) SELECT * FROM n ORDER BY s || i DESC",
    "INSERT INTO notes (id, body, seen_on) WITH RECURSIVE n(i) AS (SELECT 9 UNION ALL SELECT i + 1 FROM n) SELECT i, printf('%.90000c', 'x'), '' FROM n",
    "SELECT zeroblob(1000000000)",
)


@pytest.mark.parametrize("sql", [*ESCAPES, *UNREPEATABLE, *RUNAWAYS])
@pytest.mark.parametrize("tool", ["read", "write"])
def test_what_reaches_beyond_the_rows_or_does_not_end_is_refused(notes: SqliteWorld, tool: str, sql: str, tmp_path: Path) -> None:
    start = notes.state_of(notes.seed_rows)
    state, observation = notes.call(start, ToolCall(tool, {"sql": sql.replace("{folder}", str(tmp_path))}))
    assert observation.error_class == "tool_error", observation
    assert state is start
    assert list(tmp_path.iterdir()) == []


def test_a_reading_tool_changes_nothing(notes: SqliteWorld) -> None:
    start = notes.state_of(notes.seed_rows)
    for sql in ("DELETE FROM tags", "INSERT INTO tags VALUES (2, 'c')", "UPDATE notes SET size = 0", "REPLACE INTO tags VALUES (1, 'a')"):
        assert notes.call(start, ToolCall("read", {"sql": sql}))[1].error_class == "tool_error"
        assert notes.call(start, ToolCall("write", {"sql": sql}))[1].error_class is None


def test_ordinary_sql_works(write: Write) -> None:
    for sql, told in (
        ("SELECT count(*) AS n FROM notes JOIN tags ON note_id = id", '{"rows":[{"n":3}]}'),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3) SELECT count(*) AS n FROM n", '{"rows":[{"n":3}]}'),
        (
            "SELECT date('2026-01-31', '+1 month') AS d, julianday('2026-01-02') - julianday('2026-01-01') AS n",
            '{"rows":[{"d":"2026-03-03","n":1.0}]}',
        ),
        ("SELECT value FROM json_each('[5]')", '{"rows":[{"value":5}]}'),
        (
            "SELECT x'00ff' AS b, 9e999 AS r, 9007199254740993 AS i",
            '{"rows":[{"b":{"$blob":"00ff"},"i":{"$integer":"9007199254740993"},"r":{"$real":"inf"}}]}',
        ),
        ("SELECT row_number() OVER (ORDER BY id DESC) AS n FROM notes", '{"rows":[{"n":1},{"n":2}]}'),
        ("INSERT INTO notes VALUES (3, 'x', 1, '')", '{"rows":[]}'),
    ):
        assert write(sql)[1] == Observation(told), sql


def test_an_answer_is_cut_at_its_limit_and_says_so(notes: SqliteWorld, write: Write) -> None:
    observation = write("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 51) SELECT i FROM n")[1]
    assert observation.content.count('"i"') == 50
    assert observation.content.endswith('"truncated":true}')


def test_a_runaway_ends_after_the_same_number_of_steps_each_time(write: Write) -> None:
    sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {}) SELECT count(*) AS n FROM n"
    low, high = 1, 2_000_000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if write(sql.format(middle))[1].error_class is None else (low, middle)
    assert [write(sql.format(low))[1].error_class for _ in range(3)] == [None] * 3
    assert [write(sql.format(high))[1].error_class for _ in range(3)] == ["tool_error"] * 3


def test_the_wall_clock_is_the_worlds_failure() -> None:
    world = SqliteWorld(definition(limits={"steps": 10**9, "seconds": 0.05}))
    with pytest.raises(WorldFailed, match=r"longer than 0\.05 s"):
        world.call(world.state_of(world.seed_rows), ToolCall("read", {"sql": RUNAWAYS[0]}))


def test_a_tool_whose_own_sql_is_wrong_or_escapes_is_refused_before_anybody_acts() -> None:
    for sql, told in (
        ("ATTACH ':memory:' AS x", "not authorized"),
        ("UPDATE absent SET a = 1", "no such table"),
        ("UPDATE notes SET body = :absent", "absent"),
        ("PRAGMA user_version = 3", ""),
    ):
        with pytest.raises(BundleError, match=f"tool 'act'.*{told}"):
            SqliteWorld(definition(tools=[{"name": "act", "description": "", "changes": [sql]}]))


def test_a_tool_that_fails_at_work_is_the_worlds_failure() -> None:
    tool = {"name": "act", "description": "", "changes": ["INSERT INTO notes (id) VALUES (7)"]}
    world = SqliteWorld(definition(tools=[tool]))
    with pytest.raises(WorldFailed, match="tool 'act' failed"):
        world.call(world.state_of(world.seed_rows), ToolCall("act", {}))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"schema_sql": "CREATE TABLE t (a)", "seed_sql": ""}, "needs a primary key"),
        ({"schema_sql": "CREATE TABLE t (a TEXT PRIMARY KEY)", "seed_sql": ""}, "needs a primary key"),
        ({"seed_sql": "ATTACH '/tmp/x.db' AS x"}, "not authorized"),
        ({"seed_sql": "INSERT INTO notes (id, body) VALUES (9, random())"}, "not authorized"),
        ({"seed_sql": "PRAGMA writable_schema = ON"}, "not authorized"),
        ({"seed_sql": "INSERT INTO absent VALUES (1)"}, "no such table"),
        ({"volatile": ["notes.nothing"]}, "no table or column"),
    ],
)
def test_a_world_that_does_not_hold_together_is_refused(changes: dict[str, object], told: str) -> None:
    with pytest.raises(BundleError, match=told):
        SqliteWorld(definition(**changes))


def test_a_folder_without_its_files_or_with_wrong_ones_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"world\.toml"):
        read_definition(tmp_path)
    (tmp_path / "world.toml").write_text('name = "Bad Name"')
    with pytest.raises(BundleError, match=r"schema\.sql"):
        read_definition(tmp_path)
    for name in ("schema.sql", "seed.sql"):
        (tmp_path / name).write_text("")
    with pytest.raises(BundleError, match="name: "):
        read_definition(tmp_path)


def test_sqlite_here_can_hold_its_heap() -> None:
    limit = sqlite3.connect(":memory:").execute("PRAGMA hard_heap_limit").fetchone()[0]
    assert 0 < limit <= 1 << 30
