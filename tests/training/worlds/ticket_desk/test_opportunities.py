from training.worlds.opportunities import Act
from training.worlds.source import source_of
from training.worlds.ticket_desk.bundles import generate
from training.worlds.ticket_desk.meaning import plan
from training.worlds.ticket_desk.opportunities import OPPORTUNITIES
from training.worlds.ticket_desk.rules import rule_of
from training.worlds.ticket_desk.state import state_of
from training.worlds.ticket_desk.synthesis import tasks


def test_the_desk_classifies_every_listed_ticket_as_its_reference_acts() -> None:
    for draft in tasks(40, 5, level=0):
        places = OPPORTUNITIES.opportunities(draft)
        calls = [Act(call["name"], call["arguments"]) for turn in draft.reference["turns"] for call in turn]
        assert OPPORTUNITIES.acted(calls) == {place.key for place in places if place.wanted}
        assert OPPORTUNITIES.looked_at(calls) == {place.key for place in places}
        due = {duty.ticket_id for duty in plan(rule_of(draft.spec["rule"]), state_of(draft.initial_state))}
        assert due == {place.key for place in places if place.wanted}


def test_the_same_reminder_is_wanted_under_one_cool_down_and_not_under_another() -> None:
    wants: dict[str, set[bool]] = {}
    for draft in tasks(200, 5, level=0):
        for place in OPPORTUNITIES.opportunities(draft):
            wants.setdefault(place.condition, set()).add(place.wanted)
    assert all(len(told) == 1 for told in wants.values()), {name for name, told in wants.items() if len(told) > 1}
    assert wants["never reminded"] == {True} and wants["does not match"] == {False}
    assert wants["reminded 12 to 24 h ago, cool-down 12 h"] == {True} and wants["reminded 12 to 24 h ago, cool-down 24 h"] == {False}


def test_tasks_of_another_form_have_none_and_the_world_names_its_classifier() -> None:
    assert OPPORTUNITIES.opportunities(generate(1, seed=1)[0]) == () and OPPORTUNITIES.opportunities(tasks(1, 5, level=2)[0]) == ()
    assert source_of("ticket_desk").opportunities is OPPORTUNITIES and source_of("bfcl").opportunities is None


def test_writes_and_digests_act_on_the_tickets_they_name() -> None:
    calls = [
        Act("mark_reminded", {"ticket": "T1"}),
        Act("update_ticket", {"id": "T2", "fields": {}}),
        Act("send_digest", {"ticket_ids": ["T3", "T4"]}),
        Act("ask_user", {}),
    ]
    assert OPPORTUNITIES.acted(calls) == {"T1", "T2", "T3", "T4"}
