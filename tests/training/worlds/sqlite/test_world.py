"""States of SQLite worlds: exact at rest, compared by their rows, changed only as tools allow."""

import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.bundle import BundleDraft
from ledger.errors import BundleError, SettingsError, WorldFailed
from training.worlds import Change, Observation, Snapshot, ToolCall
from training.worlds.sqlite import EXAMPLES, SOURCE, SqliteState, SqliteWorld, load_tasks, read_definition, world_folder
from training.worlds.sqlite.database import build

Write = Callable[[str], tuple[SqliteState, Observation]]
SHOP = SqliteWorld(read_definition(EXAMPLES / "shop"))
ORDERS = st.sampled_from([f"O-{number}" for number in range(100, 112)])
SKUS = st.sampled_from(["LMP-1", "BLB-1", "KET-1", "KET-2", "PAN-1", "none"])
COUNTS = st.integers(0, 12)
CALLS = st.one_of(
    st.builds(lambda o: ToolCall("cancel_order", {"order_id": o}), ORDERS),
    st.builds(lambda o: ToolCall("get_order", {"order_id": o}), ORDERS),
    st.builds(lambda o, a: ToolCall("change_address", {"order_id": o, "address": a}), ORDERS, st.text(max_size=20)),
    st.builds(
        lambda o, s, n: ToolCall("refund_item", {"order_id": o, "sku": s, "quantity": n, "reason": "unwanted"}), ORDERS, SKUS, COUNTS
    ),
    st.builds(lambda s, n: ToolCall("place_order", {"customer_id": "C-1", "sku": s, "quantity": n}), SKUS, COUNTS),
)


@settings(max_examples=40, deadline=None)
@given(before=st.lists(CALLS, max_size=6), after=st.lists(CALLS, max_size=4))
def test_a_restored_or_forked_state_goes_on_exactly_like_the_state_itself(before: list[ToolCall], after: list[ToolCall]) -> None:
    def run(state: SqliteState, calls: list[ToolCall]) -> tuple[str, bytes, list[Observation]]:
        observations = []
        for call in calls:
            state, observation = SHOP.call(state, call)
            observations.append(observation)
        return state.digest, state.data, observations

    state = SHOP.state_of(SHOP.seed_rows)
    for call in before:
        state, _ = SHOP.call(state, call)
    at_rest, data = SHOP.snapshot(state), bytes(state.data)
    expected = run(state, after)
    copies = [SHOP.restore(at_rest), *SHOP.fork(at_rest, 2)]
    assert {SHOP.digest(copy) for copy in copies} == {at_rest.snapshot_id}
    assert [run(copy, after) for copy in copies] == [expected] * 3
    assert state.data == data and SHOP.digest(state) == at_rest.snapshot_id


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    values=st.lists(
        st.one_of(st.none(), st.integers(), st.floats(allow_nan=False), st.binary(max_size=8), st.text(max_size=8)), max_size=12
    ),
)
def test_a_digest_does_not_depend_on_the_order_of_writing(seed: int, values: list[Any]) -> None:
    from training.worlds.sqlite.database import opened, primary_keys, rows_of, schema_of

    with opened(build(["CREATE TABLE t (id TEXT NOT NULL PRIMARY KEY, v)"], {})) as connection:
        rows = [(f"{number:02}", value) for number, value in enumerate(values) if not isinstance(value, int) or abs(value) < 2**63]
        keys = primary_keys(connection)
        digests = set()
        for _ in range(2):
            connection.execute("DELETE FROM t")
            connection.executemany("INSERT INTO t VALUES (?, ?)", random.Random(seed).sample(rows, len(rows)))
            digests.add(SqliteState(connection.serialize(), keys).digest)
            rows.reverse()
        seen = rows_of(connection, keys)
        again = SqliteState(build(schema_of(connection), seen), keys)
    assert digests == {again.digest}
    assert json.loads(again.view_json) == seen


def test_rows_in_another_order_make_the_same_bytes(notes: SqliteWorld) -> None:
    turned = {table: dict(reversed(rows.items())) for table, rows in reversed(notes.seed_rows.items())}
    assert build(notes.schema, turned) == build(notes.schema, notes.seed_rows)


def test_differences_are_named_by_primary_key(notes: SqliteWorld, write: Write) -> None:
    start = notes.state_of(notes.seed_rows)
    state, _ = write("UPDATE notes SET body = 'uno' WHERE id = 1")
    assert notes.diff(start, state).changes == (Change("/notes/1/body", "one", "uno"),)
    state, _ = write("DELETE FROM tags WHERE tag = 'b'")
    assert [change.path for change in notes.diff(start, state).changes] == ['/tags/[1,"b"]']


def test_a_table_with_a_volatile_key_is_compared_by_content(shop: SqliteWorld) -> None:
    def refund(state: SqliteState, sku: str) -> SqliteState:
        return shop.call(state, ToolCall("refund_item", {"order_id": "O-101", "sku": sku, "quantity": 1, "reason": "unwanted"}))[0]

    start = shop.state_of(shop.seed_rows)
    one, other = refund(refund(start, "LMP-1"), "BLB-1"), refund(refund(start, "BLB-1"), "LMP-1")
    assert shop.digest(one) != shop.digest(other)
    assert shop.material(shop.view(one)) == shop.material(shop.view(other))
    assert shop.material(shop.view(one)) != shop.material(shop.view(refund(start, "LMP-1")))


def test_a_refused_call_leaves_the_state_and_says_why(shop: SqliteWorld) -> None:
    start = shop.state_of(shop.seed_rows)
    for call, error_class, told in (
        (ToolCall("fly", {}), "unknown_tool", "find_customer"),
        (ToolCall("get_order", {"order": "O-101"}), "invalid_arguments", "it takes order_id"),
        (ToolCall("get_order", {}), "invalid_arguments", "order_id is missing"),
        (ToolCall("get_order", {"order_id": 7}), "invalid_arguments", "plain text"),
        (ToolCall("get_order", {"order_id": "\ud800"}), "invalid_arguments", "plain text"),
        (ToolCall("place_order", {"customer_id": "C-1", "sku": "LMP-1", "quantity": 0}), "invalid_arguments", "from 1 to 100"),
        (ToolCall("place_order", {"customer_id": "C-1", "sku": "LMP-1", "quantity": True}), "invalid_arguments", "from 1 to 100"),
        (ToolCall("list_orders", {"customer_id": "C-1", "status": "lost"}), "invalid_arguments", "one of placed"),
        (ToolCall("get_order", {"order_id": "O-9"}), "not_found", "no order O-9"),
        (ToolCall("cancel_order", {"order_id": "O-101"}), "tool_error", "no longer"),
        (ToolCall("place_order", {"customer_id": "C-1", "sku": "KET-2", "quantity": 1}), "tool_error", "not 1 of KET-2"),
    ):
        state, observation = shop.call(start, call)
        assert (state, observation.error_class) == (start, error_class), call
        assert told in observation.content


def test_a_constraint_undoes_the_whole_call(notes: SqliteWorld, write: Write) -> None:
    state, observation = write("INSERT INTO tags VALUES (1, 'c'), (99, 'a')")
    assert (observation.error_class, notes.digest(state)) == ("tool_error", notes.digest(notes.state_of(notes.seed_rows)))


def test_a_snapshot_that_was_tampered_with_is_refused(shop: SqliteWorld, notes: SqliteWorld) -> None:
    start = shop.snapshot(shop.state_of(shop.seed_rows))
    with pytest.raises(WorldFailed, match="holds rows with digest"):
        shop.restore(Snapshot("0" * 64, start.data))
    with pytest.raises(WorldFailed, match="no database"):
        shop.restore(Snapshot(start.snapshot_id, b"SQLite format 3\x00 or not"))
    with pytest.raises(WorldFailed, match="another schema"):
        shop.restore(notes.snapshot(notes.state_of(notes.seed_rows)))


def test_a_bundle_for_another_database_or_schema_is_refused(shop: SqliteWorld, notes: SqliteWorld) -> None:
    task = load_tasks(shop, EXAMPLES / "shop", count=1)[0]
    with pytest.raises(BundleError, match="sqlite/shop; allowed: sqlite/notes"):
        notes.reset(task, seed=0)
    other = {**task.initial_state, "schema": task.initial_state["schema"][1:]}
    with pytest.raises(BundleError, match="another schema"):
        shop.reset(BundleDraft(name="x", world="sqlite", request=task.request, initial_state=other), seed=0)
    bad = {
        **task.initial_state,
        "rows": {"orders": {"O-1": {"id": "O-1", "customer_id": "C-9", "address": "", "status": "placed", "placed_on": ""}}},
    }
    with pytest.raises(BundleError, match="refers to no row of 'customers'"):
        shop.reset(BundleDraft(name="x", world="sqlite", request=task.request, initial_state=bad), seed=0)


def test_a_source_needs_one_known_world() -> None:
    assert world_folder({"name": "shop"}).name == "shop"
    for options in ({}, {"name": "shop", "folder": "x"}, {"name": "bank"}):
        with pytest.raises(SettingsError, match="hospital, shop"):
            world_folder(options)
    assert sorted(SOURCE.scripts) == ["drops_last_call", "gives_up", "oracle"]


def test_forking_and_comparing_takes_less_than_50_ms(shop: SqliteWorld) -> None:
    at_rest = shop.snapshot(shop.state_of(shop.seed_rows))
    spent = []
    for _ in range(7):
        began = time.thread_time()
        one, two = shop.fork(at_rest, 2)
        one, _ = shop.call(one, ToolCall("cancel_order", {"order_id": "O-102"}))
        assert len(shop.diff(one, two).changes) == 2
        spent.append(time.thread_time() - began)
    assert min(spent) < 0.05
