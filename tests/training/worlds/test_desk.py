"""The ticket desk world: tools, refusals, and states that can be kept, restored, forked and compared."""

import dataclasses
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.bundle import BundleDraft
from ledger.errors import BundleError, CanonicalError, WorldFailed
from training.worlds import Change, Snapshot, ToolCall, World
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate
from training.worlds.ticket_desk.state import DURING_ROLLOUT, DeskState, state_of, view_of

DESK: World[DeskState] = TicketDesk()
NOW = "2026-03-14T09:00:00Z"


def a_draft(**changes: Any) -> BundleDraft:
    """Three tickets: old and open, exactly seven days old, and closed."""
    row = {"priority": "P1", "status": "open", "owner_id": "O1", "last_reminded_at": None, "note": ""}
    state = {
        "tickets": {
            "T1": {**row, "opened_at": "2026-03-01T09:00:00Z"},
            "T2": {**row, "opened_at": "2026-03-07T09:00:00Z"},
            "T3": {**row, "opened_at": "2026-03-01T09:00:00Z", "status": "closed", "priority": "P2"},
        },
        "owners": {"O1": {"name": "Ada Moss", "email": "ada@desk.example"}, "O2": {"name": "Ben Ito", "email": "ben@desk.example"}},
        "outbox": {},
        "call_log": [],
        "clock": {"started_at": NOW, "now": NOW},
    }
    request = {"turns": [[{"role": "user", "content": "go"}]]}
    return BundleDraft(name="hand", world="ticket_desk", request=request, initial_state={**state, **changes})


def start() -> DeskState:
    return DESK.reset(a_draft(), seed=0)


def call(state: DeskState, name: str, **arguments: Any) -> tuple[DeskState, Any, str | None]:
    after, observation = DESK.call(state, ToolCall(name, arguments))
    return after, json.loads(observation.content), observation.error_class


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, ["T1", "T2", "T3"]),
        ({"older_than_days": 7}, ["T1", "T3"]),
        ({"older_than_days": 6.999}, ["T1", "T2", "T3"]),
        ({"older_than_days": 7, "status": "open"}, ["T1"]),
        ({"priority": "P2"}, ["T3"]),
        ({"priority": "P4"}, []),
    ],
)
def test_a_query_returns_the_rows_that_pass_every_filter_and_exactly_seven_days_is_not_older(filters: Any, found: list[str]) -> None:
    _, answer, error = call(start(), "query_tickets", **filters)
    assert error is None
    assert [row["id"] for row in answer["tickets"]] == found


def test_age_counts_from_the_request_however_many_calls_came_before() -> None:
    state = start()
    for _ in range(100):
        state, _, _ = call(state, "query_tickets")
    _, answer, _ = call(state, "query_tickets", older_than_days=7, status="open")
    assert [row["id"] for row in answer["tickets"]] == ["T1"]


def test_a_mail_is_kept_with_the_time_of_its_own_call_and_the_clock_moves_one_second_a_call() -> None:
    state, _, _ = call(start(), "get_owner", owner_id="O1")
    state, answer, _ = call(state, "send_email", to="ada@desk.example", subject="s", body="b", ticket_id="T1")
    assert answer == {"sent": "M001", "sent_at": "2026-03-14T09:00:02Z"}
    assert view_of(state)["outbox"] == {
        "M001": {"ticket_id": "T1", "to": "ada@desk.example", "subject": "s", "body": "b", "sent_at": "2026-03-14T09:00:02Z"}
    }
    assert state.clock.now == "2026-03-14T09:00:02Z"


def test_an_update_changes_the_named_fields_only_and_the_diff_names_them() -> None:
    before = start()
    after, _, _ = call(before, "update_ticket", id="T1", fields={"note": "x", "last_reminded_at": NOW})
    changes = [change for change in DESK.diff(before, after).changes if change.path.startswith("/tickets")]
    assert changes == [Change("/tickets/T1/last_reminded_at", None, NOW), Change("/tickets/T1/note", "", "x")]
    cleared, _, error = call(after, "update_ticket", id="T1", fields={"last_reminded_at": None})
    assert error is None
    assert view_of(cleared)["tickets"]["T1"]["last_reminded_at"] is None


MAIL = {"to": "ada@desk.example", "subject": "s", "body": "b", "ticket_id": "T1"}


@pytest.mark.parametrize(
    ("name", "arguments", "error_class"),
    [
        ("delete_ticket", {}, "unknown_tool"),
        ("query_tickets", {"priority": "P9"}, "invalid_arguments"),
        ("query_tickets", {"priority": None}, "invalid_arguments"),
        ("query_tickets", {"older_than_days": "7"}, "invalid_arguments"),
        ("query_tickets", {"older_than_days": True}, "invalid_arguments"),
        ("query_tickets", {"older_than_days": -1}, "invalid_arguments"),
        ("query_tickets", {"older_than_days": float("nan")}, "invalid_arguments"),
        ("query_tickets", {"limit": 5}, "invalid_arguments"),
        ("get_owner", {}, "invalid_arguments"),
        ("get_owner", {"owner_id": 1}, "invalid_arguments"),
        ("get_owner", {"owner_id": "O9"}, "not_found"),
        ("send_email", {**MAIL, "to": "ada"}, "invalid_arguments"),
        ("send_email", {**MAIL, "to": "a@b.c, d@e.f"}, "invalid_arguments"),
        ("send_email", {**MAIL, "body": "\ud800"}, "invalid_arguments"),
        ("send_email", {**MAIL, "subject": "a\x00b"}, "invalid_arguments"),
        ("send_email", {**MAIL, "subject": ""}, "invalid_arguments"),
        ("send_email", {**MAIL, "body": "x" * 2001}, "invalid_arguments"),
        ("send_email", {**MAIL, "ticket_id": "T9"}, "not_found"),
        ("update_ticket", {"id": "T9", "fields": {"note": ""}}, "not_found"),
        ("update_ticket", {"id": "T1", "fields": {}}, "invalid_arguments"),
        ("update_ticket", {"id": "T1", "fields": []}, "invalid_arguments"),
        ("update_ticket", {"id": "T1", "fields": {"opened_at": NOW}}, "invalid_arguments"),
        ("update_ticket", {"id": "T1", "fields": {"owner_id": "O9"}}, "not_found"),
        ("update_ticket", {"id": "T1", "fields": {"last_reminded_at": "2026-03-14 09:00"}}, "invalid_arguments"),
        ("update_ticket", {"id": "T1", "fields": {"last_reminded_at": "2026-02-30T09:00:00Z"}}, "invalid_arguments"),
        ("update_ticket", {"id": "T1", "fields": {"last_reminded_at": NOW + "\n"}}, "invalid_arguments"),
    ],
)
def test_a_policy_mistake_is_answered_and_logged_and_changes_nothing_else(name: str, arguments: Any, error_class: str) -> None:
    before = start()
    after, answer, seen = call(before, name, **arguments)
    assert (seen, answer["error"]) == (error_class, error_class)
    assert (after.tickets, after.owners, after.outbox) == (before.tickets, before.owners, before.outbox)
    assert [(entry.name, entry.error_class) for entry in after.call_log] == [(name, error_class)]


def test_arguments_that_are_no_object_are_malformed() -> None:
    _, observation = DESK.call(start(), ToolCall("get_owner", ["O1"]))  # type: ignore[arg-type]
    assert observation.error_class == "malformed_arguments"


def test_a_restored_snapshot_is_the_same_state_and_forks_go_their_own_way() -> None:
    state, _, _ = call(start(), "send_email", **MAIL)
    snapshot = DESK.snapshot(state)
    left, right = DESK.fork(snapshot, 2)
    assert DESK.digest(left) == DESK.digest(right) == snapshot.snapshot_id == DESK.digest(DESK.restore(snapshot))
    assert left == right == state
    moved, _, _ = call(left, "update_ticket", id="T1", fields={"note": "left"})
    assert DESK.digest(right) == snapshot.snapshot_id != DESK.digest(moved)
    assert DESK.diff(left, right).changes == ()


def test_a_snapshot_whose_bytes_were_changed_is_refused() -> None:
    snapshot = DESK.snapshot(start())
    with pytest.raises(WorldFailed, match="digest"):
        DESK.restore(Snapshot(snapshot.snapshot_id, snapshot.data.replace(b"T1", b"T4")))


def test_a_state_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        start().tickets[0].note = "x"  # type: ignore[misc]


def test_material_ignores_mail_text_ids_log_and_clock_but_not_a_second_mail_or_a_wrong_time() -> None:
    one, _, _ = call(start(), "send_email", **MAIL)
    other, _, _ = call(start(), "ask_user", question="?")
    other, _, _ = call(other, "send_email", to=" ADA@desk.example", subject="x", body="y", ticket_id="T1")
    assert DESK.material(DESK.view(one)) == DESK.material(DESK.view(other))
    assert DESK.material(DESK.view(one))["outbox"] == {"T1": {"ada@desk.example": 1}}
    twice, _, _ = call(one, "send_email", **MAIL)
    assert DESK.material(DESK.view(twice))["outbox"] == {"T1": {"ada@desk.example": 2}}
    written = {}
    for moment in (NOW, "2026-03-14T09:00:01Z", "2026-03-14T09:00:02Z", "2026-03-14T08:59:59Z"):
        state, _, _ = call(start(), "update_ticket", id="T1", fields={"last_reminded_at": moment})
        written[moment] = DESK.material(DESK.view(state))["tickets"]["T1"]["last_reminded_at"]
    assert list(written.values()) == [DURING_ROLLOUT, DURING_ROLLOUT, "2026-03-14T09:00:02Z", "2026-03-14T08:59:59Z"]


@pytest.mark.parametrize(
    "changes",
    [
        {"owners": {}},
        {"tickets": []},
        {"call_log": {}},
        {"clock": {"started_at": NOW}},
        {"clock": {"started_at": NOW, "now": "2026-03-14T08:00:00Z"}},
        {"owners": {"O1": {"id": "O2", "name": "a", "email": "a@b.c"}}},
        {"owners": {"O1": {"name": 1, "email": "a@b.c"}}},
        {"surplus": {}},
    ],
)
def test_an_initial_state_of_another_form_is_refused(changes: Any) -> None:
    with pytest.raises(BundleError):
        DESK.reset(a_draft(**changes), seed=0)


def test_an_initial_state_with_text_that_cannot_be_hashed_is_refused() -> None:
    with pytest.raises(CanonicalError):
        DESK.reset(a_draft(owners={"O1": {"name": "a\x00", "email": "a@b.c"}}), seed=0)


def test_a_task_of_another_world_is_refused() -> None:
    with pytest.raises(BundleError, match="ticket_desk"):
        DESK.reset(dataclasses.replace(a_draft(), world="bfcl"), seed=0)


def test_tools_given_to_one_caller_can_be_changed_without_harm_to_the_next() -> None:
    DESK.tools(a_draft(), turn=0)[0]["function"]["parameters"]["properties"]["status"]["enum"].clear()
    shown = DESK.tools(a_draft(), turn=0)
    assert [schema["function"]["name"] for schema in shown] == ["query_tickets", "get_owner", "send_email", "update_ticket", "ask_user"]
    assert shown[0]["function"]["parameters"]["properties"]["status"]["enum"] == ["open", "in_progress", "closed"]


def test_fork_and_compare_take_well_under_fifty_milliseconds() -> None:
    drafts = generate(1, seed=3)
    snapshot = DESK.snapshot(DESK.reset(drafts[0], seed=0))
    took = []
    for _ in range(5):
        begun = time.perf_counter()
        left, right = DESK.fork(snapshot, 2)
        DESK.diff(left, right)
        took.append(time.perf_counter() - begun)
    assert min(took) < 0.05


WILD = st.text(st.characters(exclude_categories=()), max_size=6)
WILD_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WILD,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WILD, inner, max_size=2),
    max_leaves=4,
)
LIKELY = st.sampled_from(["T1", "T2", "O1", "O2", "P1", "P3", "open", "closed", NOW, "ada@desk.example", 7, None, True]) | WILD_JSON
FIELDS = st.dictionaries(st.sampled_from(["status", "priority", "owner_id", "last_reminded_at", "note"]), LIKELY, max_size=3)
KEYS = st.sampled_from(["id", "to", "subject", "body", "ticket_id", "owner_id", "priority", "status", "older_than_days", "question"])
NAMES = st.sampled_from(["query_tickets", "get_owner", "send_email", "update_ticket", "ask_user"])
ARGUMENTS = (
    st.dictionaries(KEYS | WILD, LIKELY, max_size=4)
    | st.fixed_dictionaries({"id": LIKELY, "fields": FIELDS})
    | st.fixed_dictionaries({"to": LIKELY, "subject": WILD, "body": WILD, "ticket_id": LIKELY})
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(NAMES | WILD, ARGUMENTS), max_size=5))
def test_whatever_is_called_the_state_stays_valid_and_its_twin_agrees(calls: list[tuple[str, dict[str, Any]]]) -> None:
    state = twin = start()
    for name, arguments in calls:
        state, observation = DESK.call(state, ToolCall(name, arguments))
        twin, again = DESK.call(DESK.restore(DESK.snapshot(twin)), ToolCall(name, arguments))
        json.loads(observation.content)
        observation.content.encode("utf-8")
        assert observation == again
    assert state_of(view_of(state)) == state
    assert DESK.digest(state) == DESK.digest(twin)
    assert len(state.call_log) == len(calls)
    assert DESK.material(DESK.view(state))["owners"] == a_draft().initial_state["owners"]
