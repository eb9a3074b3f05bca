"""Tasks of a SQLite world from its `tasks.toml`; statements make the initial rows, the reference makes the end state. Reads files."""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ledger.bundle import BundleDraft
from ledger.canonical import digest
from ledger.errors import BundleError
from training.worlds import ToolCall
from training.worlds.sqlite.database import Rows, building, primary_keys, rows_of
from training.worlds.sqlite.definition import TaskEntry, read_tasks
from training.worlds.sqlite.world import SqliteState, SqliteWorld


def load_tasks(world: SqliteWorld, folder: Path, *, count: int) -> list[BundleDraft]:
    """The first `count` tasks of the folder.

    Raises:
        BundleError: there are none or fewer, or a setup or a reference does not work.
    """
    entries = read_tasks(folder)
    if not 1 <= count <= len(entries):
        raise BundleError(f"{folder.name} has {len(entries)} tasks; asked for {count}")
    return [_draft(world, entry) for entry in entries[:count]]


def _draft(world: SqliteWorld, entry: TaskEntry) -> BundleDraft:
    definition = world.definition
    rows = _set_up(world, entry)
    turns = [[{"role": "user", "content": text.strip()}] for text in entry.turns]
    spec: dict[str, Any] = {"conditions": entry.conditions}
    if entry.allowed_changes is not None:
        spec["allowed_changes"] = entry.allowed_changes
    end = replayed(world, world.state_of(rows), entry.calls)
    wording = digest({"system": definition.system, "turns": turns})[:16]
    return BundleDraft(
        name=f"{definition.name}-{entry.name}",
        world=world.name,
        request={"system": definition.system, "turns": turns},
        initial_state={"database": definition.name, "schema": world.schema, "rows": rows},
        spec=spec,
        reference={
            "turns": entry.calls, "end_state": world.material(world.view(end)), "equivalent": entry.equivalent, "wrong": entry.wrong,
        },
        hint=entry.hint,
        split=entry.split,
        provenance={
            "proposer": "hand", "seed": None, "source": f"sqlite/{definition.name}", "licence": definition.licence,
            "family": f"{definition.name}/{entry.family}", "wording": wording, "names": digest(rows)[:16],
        },
    )  # fmt: skip


def replayed(world: SqliteWorld, state: SqliteState, turns: Sequence[Sequence[Mapping[str, Any]]]) -> SqliteState:
    """The state after the calls of all user turns.

    Raises:
        BundleError: a call is refused, so the turns are no reference.
    """
    for call in (call for calls in turns for call in calls):
        state, observation = world.call(state, ToolCall(call["name"], call["arguments"]))
        if observation.error_class is not None:
            raise BundleError(f"reference call {call['name']!r} with {dict(call['arguments'])} is refused: {observation.content}")
    return state


def _set_up(world: SqliteWorld, entry: TaskEntry) -> Rows:
    if not entry.setup:
        return world.seed_rows
    with building(world.state_of(world.seed_rows).data) as connection:
        try:
            for sql in entry.setup:
                connection.execute(sql)
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise BundleError(f"task {entry.name!r}: setup {sql!r} fails: {error}") from error
        return rows_of(connection, primary_keys(connection))
