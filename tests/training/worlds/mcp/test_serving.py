"""Sessions of outside agents: kept apart, snapshotted on our side, judged like any rollout. No server is started here."""

import base64
import json
from typing import Any

import pytest

from ledger.errors import BundleError, SettingsError, WorldFailed
from ledger.settings import Settings
from training.verifiers.sqlite_conditions import sqlite_conditions
from training.worlds import Observation, ToolCall
from training.worlds.mcp import SOURCE
from training.worlds.mcp.serving import Sessions, answer
from training.worlds.mcp.world import server_of
from training.worlds.sqlite import EXAMPLES, SqliteState, SqliteWorld, load_tasks, read_definition

WORLD = SqliteWorld(read_definition(EXAMPLES / "shop"))
DRAFTS = {draft.name: draft for draft in load_tasks(WORLD, EXAMPLES / "shop", count=2)}
LAMP, CANCEL = DRAFTS
REFUND = {"order_id": "O-101", "sku": "LMP-1", "quantity": 1, "reason": "unwanted"}


def test_sessions_of_one_task_do_not_see_each_other() -> None:
    sessions = Sessions(WORLD, DRAFTS)
    assert sessions.call(LAMP, "a", "refund_item", REFUND).error_class is None
    sessions.call(LAMP, "b", "get_order", {"order_id": "O-101"})
    assert sessions.verdict(LAMP, "a", sqlite_conditions).passed is True
    assert sessions.verdict(LAMP, "b", sqlite_conditions).passed is False
    assert sessions.snapshot(LAMP, "a").snapshot_id != sessions.snapshot(LAMP, "b").snapshot_id
    assert WORLD.digest(WORLD.restore(sessions.snapshot(LAMP, "a"))) == WORLD.digest(sessions.session(LAMP, "a").state)


def test_the_first_task_is_that_of_a_session_without_one_and_others_must_be_known() -> None:
    sessions = Sessions(WORLD, DRAFTS)
    assert sessions.session("", "stdio").draft.name == LAMP
    with pytest.raises(BundleError, match=f"no task 'x'; there are {LAMP}, {CANCEL}"):
        sessions.session("x", "stdio")
    with pytest.raises(BundleError, match="at least one task"):
        Sessions(WORLD, {})


def test_the_pair_of_snapshot_tools_is_offered_only_when_asked_for() -> None:
    plain, paired = Sessions(WORLD, DRAFTS), Sessions(WORLD, DRAFTS, snapshots=True)
    assert len(paired.tools(LAMP, "a")) == len(plain.tools(LAMP, "a")) + 2
    assert plain.call(LAMP, "a", "tally_snapshot", {}).error_class == "unknown_tool"
    paired.call(LAMP, "a", "refund_item", REFUND)
    taken = json.loads(paired.call(LAMP, "a", "tally_snapshot", {}).content)
    pair = {"snapshot_id": taken["snapshot_id"], "data": taken["data"]}
    assert paired.call(LAMP, "b", "tally_restore", pair).error_class is None
    assert paired.snapshot(LAMP, "b") == paired.snapshot(LAMP, "a")
    assert taken["view"] == WORLD.view(paired.session(LAMP, "a").state) and taken["material"] == WORLD.material(taken["view"])


@pytest.mark.parametrize(
    "pair", [{}, {"snapshot_id": "0" * 64, "data": "no base64!"}, {"snapshot_id": "0" * 64, "data": base64.b64encode(b"x").decode()}]
)
def test_a_snapshot_that_is_none_is_refused_and_changes_nothing(pair: dict[str, str]) -> None:
    sessions = Sessions(WORLD, DRAFTS, snapshots=True)
    before = sessions.snapshot(LAMP, "a")
    assert sessions.call(LAMP, "a", "tally_restore", pair).error_class == "invalid_arguments"
    assert sessions.snapshot(LAMP, "a") == before


def test_every_call_is_noted_with_the_states_around_it() -> None:
    noted: list[Any] = []
    sessions = Sessions(WORLD, DRAFTS, journal=noted.append)
    sessions.call(LAMP, "a", "get_order", {"order_id": "O-1"})
    sessions.call(LAMP, "a", "refund_item", REFUND)
    assert [(entry["index"], entry["name"], entry["error_class"]) for entry in noted] == [
        (0, "get_order", "not_found"),
        (1, "refund_item", None),
    ]
    assert noted[0]["state_before"] == noted[0]["state_after"] == noted[1]["state_before"] != noted[1]["state_after"]
    assert noted[1]["state_after"] == sessions.snapshot(LAMP, "a").snapshot_id


class BrokenWorld(SqliteWorld):
    """A shop whose every call breaks."""

    def call(self, state: SqliteState, call: ToolCall) -> tuple[SqliteState, Observation]:
        raise WorldFailed("out of order")


def test_a_broken_world_or_an_unknown_task_is_no_answer_of_a_tool() -> None:
    sessions = Sessions(BrokenWorld(WORLD.definition), DRAFTS)
    request = {"id": 1, "op": "call", "task": LAMP, "session": "a", "name": "get_order", "arguments": {"order_id": "O-101"}}
    assert answer(sessions, request) == {"failed": "WorldFailed: out of order"}
    assert "no task 'x'" in answer(sessions, {**request, "task": "x"})["failed"]
    working = Sessions(WORLD, DRAFTS)
    assert answer(working, {**request, "arguments": {"order_id": 2**60}})["ok"]["error_class"] == "invalid_arguments"
    assert answer(working, {**request, "arguments": {"order_id": float("nan")}})["ok"]["error_class"] == "malformed_arguments"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "either `command` or `url`"),
        ({"command": ["x"], "url": "http://x"}, "either `command` or `url`"),
        ({"url": "http://x", "timeout": 3}, "timeout"),
        ({"url": "http://x", "timeout_s": 0}, "timeout_s"),
    ],
)
def test_options_of_a_server_that_do_not_fit_are_refused_by_name(options: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        server_of(options)


def test_a_source_takes_the_example_or_a_server() -> None:
    with pytest.raises(SettingsError, match="allowed: name"):
        SOURCE.open(Settings(), {"name": "other"})
