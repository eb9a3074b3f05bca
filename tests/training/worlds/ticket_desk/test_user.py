"""The user behind a request, and what a desk with a profile shows: answers, errors, tags, digests and people."""

import json
from dataclasses import replace
from typing import Any

import pytest

from ledger.errors import BundleError
from training.worlds import ToolCall
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.state import Clock, DeskState, Fact, Owner, Profile, Said, Ticket, User, state_of, view_of
from training.worlds.ticket_desk.user import SILENT, UNKNOWN, Reply, keyword_user

NOW = "2026-03-14T09:00:00Z"
LIMIT = Fact("limit", ("exactly", "inclusive"), "Exactly counts.", "Exactly does not count.")
ZONE = Fact("zone", ("time zone",), "The desk's.", "The owner's.")
DESK = TicketDesk()


def a_state(*facts: Fact) -> DeskState:
    owners = (
        Owner("O1", "Ada Moss", "ada@desk.example", "Billing", "Asia/Tokyo", "O2", away=True),
        Owner("O2", "Ben Ito", "ben@desk.example", "Network"),
    )
    tickets = (
        Ticket("T1", "P1", "open", "2026-03-01T09:00:00Z", "O1", None, "", "2026-03-09T09:00:00Z", ("hold", "vip")),
        Ticket("T2", "P2", "open", "2026-03-10T21:00:00Z", "O1", "2026-03-14T07:30:00Z", ""),
    )
    profile = Profile("Europe/Berlin", "O2", ("2026-03-12",), ("2026-03-07: the limit was 7 days.",))
    return DeskState(tickets, owners, (), (), Clock(NOW, NOW), profile, User(facts))


def call(state: DeskState, name: str, **arguments: Any) -> tuple[DeskState, Any]:
    after, observation = DESK.call(state, ToolCall(name, arguments))
    return after, json.loads(observation.content)


def answers(fact: Fact, *questions: str) -> list[str]:
    state, given = a_state(fact), []
    for question in questions:
        state, answer = call(state, "ask_user", question=question)
        given.append(answer["answer"])
    assert state.user is not None
    assert len(state.user.log) == len(questions)
    return given


def test_the_user_answers_what_is_asked_and_nothing_else() -> None:
    state = a_state(LIMIT, ZONE)
    for question, answer in [
        ("Does EXACTLY seven days count?", "Exactly counts."),
        ("Which time zone, and is it inclusive?", "Exactly counts. The desk's."),
        ("inexactly?", UNKNOWN),
        ("What is for lunch?", UNKNOWN),
    ]:
        assert call(state, "ask_user", question=question)[1]["answer"] == answer


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, ["Exactly counts."] * 2),
        ("wrong", ["Exactly does not count."] * 2),
        ("silent", [SILENT] * 2),
        ("changes_mind", ["Exactly does not count.", "Exactly counts."]),
    ],
)
def test_each_error_of_the_user_has_its_own_kind(error: str | None, expected: list[str]) -> None:
    assert answers(replace(LIMIT, error=error), "exactly?", "exactly?") == expected


def test_what_the_user_said_is_logged_with_its_error_and_is_not_material() -> None:
    before = a_state(replace(LIMIT, error="wrong"))
    after, _ = call(before, "ask_user", question="exactly?")
    assert after.user is not None
    assert after.user.log == (Said("exactly?", "limit", "Exactly does not count.", "wrong"),)
    assert DESK.material(DESK.view(after)) == DESK.material(DESK.view(before))
    assert state_of(view_of(after)) == after


def parrot(user: User, question: str) -> Reply:
    """Says every question back; stands for a user backed by a model."""
    return Reply(question, (Said(question, None, question, None),))


def test_another_user_can_take_the_place_of_the_simulated_one_and_makes_another_world_version() -> None:
    desk = TicketDesk(respond=parrot)
    assert json.loads(desk.call(a_state(), ToolCall("ask_user", {"question": "hm?"}))[1].content) == {"answer": "hm?"}
    assert desk.version != DESK.version == TicketDesk(respond=keyword_user).version


def test_a_desk_with_a_profile_shows_tags_people_and_itself() -> None:
    state = a_state()
    assert call(state, "query_tickets", priority="P1")[1]["tickets"][0]["tags"] == ["hold", "vip"]
    assert call(state, "get_owner", owner_id="O1")[1] == {
        "id": "O1", "name": "Ada Moss", "email": "ada@desk.example", "team": "Billing", "time_zone": "Asia/Tokyo", "manager_id": "O2", "away": True,
    }  # fmt: skip
    assert call(state, "get_desk")[1]["notes"] == ["2026-03-07: the limit was 7 days."]
    assert call(replace(state, desk=None), "get_desk")[1]["error"] == "not_found"


def test_the_walk_form_lists_ids_and_shows_one_ticket_a_call() -> None:
    state = a_state()
    assert call(state, "list_tickets", older_than_days=7)[1] == {"tickets": ["T1"]}
    shown = call(state, "get_ticket", ticket="T2")[1]
    assert (shown["days"], shown["reminded_hours"], shown["email"]) == (3.5, 1.5, "ada@desk.example")
    state, _ = call(state, "mail", to="ada@desk.example", ticket="T1")
    state, _ = call(state, "mark_reminded", ticket="T1")
    assert state.ticket("T1").last_reminded_at == "2026-03-14T09:00:02Z"  # type: ignore[union-attr]
    assert DESK.material(DESK.view(state))["outbox"] == {"T1": {"ada@desk.example": 1}}


def test_a_digest_is_one_mail_about_its_tickets_in_any_order_and_unknown_tickets_stop_it() -> None:
    mail = {"to": "ada@desk.example", "subject": "s", "body": "b"}
    one, _ = call(a_state(), "send_digest", ticket_ids=["T1", "T2"], **mail)
    other, _ = call(a_state(), "send_digest", ticket_ids=["T2", "T1", "T2"], **mail)
    apart = a_state()
    for ticket_id in ("T1", "T2"):
        apart, _ = call(apart, "send_email", ticket_id=ticket_id, **mail)
    ends = [DESK.material(DESK.view(state))["outbox"] for state in (one, other, apart)]
    assert ends[0] == ends[1] == {"T1+T2": {"ada@desk.example": 1}}
    assert ends[2] != ends[0]
    refused, answer = call(a_state(), "send_digest", ticket_ids=["T1", "T9"], **mail)
    assert (answer["error"], refused.outbox) == ("not_found", ())
    assert call(a_state(), "send_digest", ticket_ids=[], **mail)[1]["error"] == "invalid_arguments"


def test_tags_are_a_set() -> None:
    state, _ = call(a_state(), "update_ticket", id="T2", fields={"tags": ["b", "a", "b"]})
    assert state.ticket("T2").tags == ("a", "b")  # type: ignore[union-attr]
    assert call(a_state(), "update_ticket", id="T2", fields={"tags": "a"})[1]["error"] == "invalid_arguments"


@pytest.mark.parametrize(
    ("part", "change", "told"),
    [
        ("desk", {"time_zone": "Mars/Base"}, "desk.time_zone is 'Mars/Base'"),
        ("desk", {"lead_id": "O9"}, "desk.lead_id is 'O9'"),
        ("desk", {"notes": "x"}, "desk.notes is 'x'; allowed: a list of text"),
        ("user", {"facts": [], "log": [], "mood": "good"}, "user must be an object with facts and log"),
        (
            "user",
            {"facts": [{"topic": "a", "about": ["a"], "reply": "b", "other": "c", "error": "lies"}], "log": []},
            "'lies'; allowed: null, wrong",
        ),
    ],
)
def test_a_profile_or_user_of_another_form_is_refused(part: str, change: dict[str, Any], told: str) -> None:
    with pytest.raises(BundleError, match=told):
        state_of({**view_of(a_state()), part: change})
