"""The desk's verifiers: each condition by hand on its edges, the scripts, and the planted gaps."""

import copy
import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.bundle import BundleDraft
from ledger.errors import VerifierFailed
from training.verifiers import JudgeTask, Verdict, verifiers
from training.worlds import AssistantTurn, ToolCall
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate
from training.worlds.ticket_desk.scripts import SCRIPTS, oracle

DESK = TicketDesk()
START, END = "2026-03-14T09:00:00Z", "2026-03-14T09:01:00Z"
SPEC = {"priority": "P1", "status": "open", "older_than_days": 7, "cooldown_hours": 24}
FAILS = {
    "oracle": set(), "other_path": set(), "wrong_recipient": {"C1", "C2"}, "duplicate_sender": {"C3"}, "ignores_cooldown": {"C3"},
    "mails_on_the_limit": {"C6"}, "forgets_reminder_time": {"C4"}, "over_writer": {"C5"}, "loops": {"C1"}, "gives_up": {"C1"},
    "malformed_call": {"C1"},
}  # fmt: skip


def played(draft: BundleDraft, turns: list[AssistantTurn]) -> tuple[Any, Any]:
    """The views before and after a script, its unreadable arguments left out as a harness would."""
    first = last = DESK.reset(draft, seed=0)
    for turn in turns:
        for name, raw in turn.tool_calls:
            try:
                arguments = json.loads(raw)
            except json.JSONDecodeError:
                continue
            last, _ = DESK.call(last, ToolCall(name, arguments))
    return DESK.view(first), DESK.view(last)


def judged(verifier: str, draft: BundleDraft, s0: Any, s_end: Any) -> Verdict:
    return verifiers[verifier](s0, s_end, (), JudgeTask(draft, DESK.material))


def failed(verdict: Verdict) -> set[str]:
    return {condition.name for condition in verdict.conditions if condition.status == "failed"}


def a_case() -> tuple[BundleDraft, Any, Any]:
    """T1 is due and belongs to Ada, T2 is due and belongs to Ben, T3 is within its cool-down; at the end both due ones are reminded."""
    row = {"priority": "P1", "status": "open", "opened_at": "2026-03-01T09:00:00Z", "last_reminded_at": None, "note": ""}
    s0 = {
        "tickets": {
            "T1": {**row, "owner_id": "O1"},
            "T2": {**row, "owner_id": "O2"},
            "T3": {**row, "owner_id": "O1", "last_reminded_at": "2026-03-14T08:00:00Z"},
        },
        "owners": {"O1": {"name": "Ada", "email": "ada@desk.example"}, "O2": {"name": "Ben", "email": "ben@desk.example"}},
        "outbox": {"M001": a_mail("T3", "ada@desk.example", "2026-03-14T08:00:00Z")},
        "call_log": [],
        "clock": {"started_at": START, "now": START},
    }
    s_end = copy.deepcopy(s0)
    s_end["clock"]["now"] = END  # type: ignore[index]
    s_end["outbox"]["M002"] = a_mail("T1", "ada@desk.example", "2026-03-14T09:00:10Z")  # type: ignore[index]
    s_end["outbox"]["M003"] = a_mail("T2", "ben@desk.example", "2026-03-14T09:00:20Z")  # type: ignore[index]
    for ticket_id in ("T1", "T2"):
        s_end["tickets"][ticket_id]["last_reminded_at"] = "2026-03-14T09:00:20Z"  # type: ignore[index]
    draft = BundleDraft(name="hand", world="ticket_desk", request={"turns": [[]]}, initial_state=s0, spec=SPEC)
    return draft, s0, s_end


def a_mail(ticket_id: str, to: str, sent_at: str) -> dict[str, str]:
    return {"ticket_id": ticket_id, "to": to, "subject": "s", "body": "b", "sent_at": sent_at}


def after(change: Callable[[Any, Any], None]) -> Verdict:
    """The verdict on the case of `a_case` after `change(s0, s_end)`."""
    draft, s0, s_end = a_case()
    change(s0, s_end)
    return judged("desk_conditions", draft, s0, s_end)


def test_the_hand_made_case_passes_every_condition_with_its_rows_as_evidence() -> None:
    verdict = after(lambda s0, s_end: None)
    assert verdict.passed is True
    assert [condition.name for condition in verdict.conditions] == ["C1", "C2", "C3", "C4", "C5", "C6"]
    assert verdict.conditions[0].evidence == {"checked": ["T1", "T2"], "failed": [], "undecided": [], "vacuous": False}
    assert verdict.conditions[1].evidence["checked"] == ["M002", "M003"]


def mail_again(to: str, ticket_id: str = "T1") -> Callable[[Any, Any], None]:
    return lambda s0, s_end: s_end["outbox"].update(M004=a_mail(ticket_id, to, "2026-03-14T09:00:30Z"))


def in_ticket(ticket_id: str, **columns: Any) -> Callable[[Any, Any], None]:
    return lambda s0, s_end: s_end["tickets"][ticket_id].update(columns)


def in_mail(mail_id: str, **columns: Any) -> Callable[[Any, Any], None]:
    return lambda s0, s_end: s_end["outbox"][mail_id].update(columns)


def in_both(ticket_id: str, **columns: Any) -> Callable[[Any, Any], None]:
    """The row was already so at the request; a reminder time written since stays."""

    def change(s0: Any, s_end: Any) -> None:
        written = s_end["tickets"][ticket_id]["last_reminded_at"]
        s0["tickets"][ticket_id].update(columns)
        s_end["tickets"][ticket_id].update(columns, last_reminded_at=written)

    return change


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        (lambda s0, s_end: s_end["outbox"].pop("M002"), {"C1", "C5"}),
        (mail_again("ada@desk.example"), {"C3"}),
        (mail_again("ben@desk.example"), {"C2"}),
        (mail_again("ada@desk.example", "T3"), {"C3", "C4"}),
        (mail_again("ada@desk.example", "T9"), {"C2", "C6"}),
        (in_mail("M002", to="  ADA@Desk.Example "), set()),
        (in_mail("M002", to="ada@desk.example.org"), {"C1", "C2"}),
        (in_mail("M002", ticket_id="T2"), {"C1", "C2", "C5"}),
        (in_mail("M001", body="rewritten"), {"C5"}),
        (lambda s0, s_end: s_end["outbox"].pop("M001"), {"C5"}),
        (in_ticket("T1", last_reminded_at=None), {"C4"}),
        (in_ticket("T1", last_reminded_at=START), set()),
        (in_ticket("T1", last_reminded_at=END), set()),
        (in_ticket("T1", last_reminded_at="2026-03-14T08:59:59Z"), {"C4"}),
        (in_ticket("T1", last_reminded_at="2026-03-14T09:01:01Z"), {"C4"}),
        (in_ticket("T1", last_reminded_at="today"), {"C4"}),
        (in_ticket("T3", last_reminded_at="2026-03-14T09:00:20Z"), {"C5"}),
        (in_ticket("T1", note="reminded"), {"C5"}),
        (in_ticket("T1", status="in_progress"), {"C5"}),
        (in_ticket("T1", owner_id="O2"), {"C5"}),
        (lambda s0, s_end: s_end["tickets"].pop("T1"), {"C4", "C5"}),
        (lambda s0, s_end: s_end["owners"]["O1"].update(email="x@y.z"), {"C5"}),
        (lambda s0, s_end: s_end["tickets"].update(T4=s_end["tickets"]["T3"]), {"C5"}),
        (lambda s0, s_end: s_end["call_log"].append({"name": "ask_user"}), set()),
        (in_both("T1", opened_at="2026-03-07T09:00:00Z"), {"C6"}),
        (in_both("T1", opened_at="2026-03-07T08:59:59Z"), set()),
        (in_both("T1", status="closed"), {"C6"}),
        (in_both("T1", priority="P2"), {"C6"}),
        (in_both("T1", last_reminded_at="2026-03-13T09:00:00Z"), set()),
        (in_both("T1", last_reminded_at="2026-03-13T09:00:01Z"), {"C3"}),
        (in_both("T1", last_reminded_at="2026-03-15T09:00:00Z"), {"C3"}),
        (lambda s0, s_end: [view["tickets"]["T1"].update(last_reminded_at=START) for view in (s0, s_end)], {"C3", "C4"}),
    ],
)
def test_a_single_change_fails_exactly_these_conditions(change: Callable[[Any, Any], None], fails: set[str]) -> None:
    verdict = after(change)
    assert failed(verdict) == fails
    assert verdict.passed is (not fails)
    assert bool(verdict.side_effects) is ("C5" in fails)


def test_a_side_effect_names_the_place_and_both_values() -> None:
    assert after(in_ticket("T3", note="hello")).side_effects == ({"path": "/tickets/T3/note", "before": "", "after": "hello"},)


def test_a_second_mail_cites_the_first() -> None:
    cooldown = after(mail_again("ada@desk.example")).conditions[2]
    assert cooldown.evidence["failed"] == [
        {"mail_id": "M004", "ticket_id": "T1", "last_reminded_at": None, "earlier_mail_id": "M002"}
    ]  # fmt: skip


def test_conditions_about_mails_pass_vacuously_and_say_so_when_none_was_sent() -> None:
    draft, s0, _ = a_case()
    verdict = judged("desk_conditions", draft, s0, s0)
    assert failed(verdict) == {"C1"}
    assert [condition.name for condition in verdict.conditions if (condition.evidence or {}).get("vacuous")] == ["C2", "C3", "C4", "C6"]


@pytest.mark.parametrize(
    ("change", "errors"),
    [
        (in_both("T1", opened_at="last week"), {"C1", "C6"}),
        (in_both("T1", last_reminded_at="yesterday"), {"C1", "C3"}),
        (in_both("T1", owner_id="O7"), {"C1", "C2"}),
        (in_mail("M002", sent_at="noon"), {"C3"}),
    ],
)
def test_what_cannot_be_read_is_an_error_and_never_passed_or_failed(change: Callable[[Any, Any], None], errors: set[str]) -> None:
    verdict = after(change)
    assert {condition.name for condition in verdict.conditions if condition.status == "error"} == errors
    assert failed(verdict) == set()
    assert verdict.passed is None


def test_a_definite_failure_outweighs_what_cannot_be_read() -> None:
    def change(s0: Any, s_end: Any) -> None:
        in_both("T1", opened_at="last week")(s0, s_end)
        s_end["outbox"].pop("M003")

    assert "C1" in failed(after(change))


@pytest.mark.parametrize("constant", sorted(SPEC))
def test_a_spec_without_a_constant_of_the_rule_is_refused(constant: str) -> None:
    draft, s0, s_end = a_case()
    spec = {key: value for key, value in SPEC.items() if key != constant}
    bare = BundleDraft(name="bare", world="ticket_desk", request=draft.request, initial_state=s0, spec=spec)
    with pytest.raises(VerifierFailed, match=constant):
        judged("desk_conditions", bare, s0, s_end)


@pytest.mark.parametrize("view", [None, {}, {"tickets": {}, "owners": {}, "outbox": [], "clock": {}}])
def test_a_state_of_another_world_is_refused(view: Any) -> None:
    draft, s0, _ = a_case()
    with pytest.raises(VerifierFailed):
        judged("desk_conditions", draft, s0, view)


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_the_reference_and_another_right_path_pass_on_every_task(seed: int) -> None:
    for draft in generate(64, seed=seed):
        for name in ("oracle", "other_path"):
            verdict = judged("desk_conditions", draft, *played(draft, SCRIPTS[name](draft)))
            assert verdict.passed is True, (draft.name, name, verdict)
            assert verdict.side_effects == ()


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_each_script_fails_exactly_its_own_conditions_on_every_task(name: str) -> None:
    for draft in generate(12, seed=4):
        assert failed(judged("desk_conditions", draft, *played(draft, SCRIPTS[name](draft)))) == FAILS[name], draft.name


@pytest.mark.parametrize(
    ("verifier", "passes"),
    [
        ("desk_without_cooldown", {"duplicate_sender", "ignores_cooldown"}),
        ("desk_without_side_effects", {"over_writer"}),
        ("desk_any_mail", {"wrong_recipient"}),
    ],
)
def test_a_planted_verifier_passes_the_right_scripts_its_own_gap_and_no_other_wrong_one(verifier: str, passes: set[str]) -> None:
    for draft in generate(5, seed=9):
        passing = {name for name, script in SCRIPTS.items() if judged(verifier, draft, *played(draft, script(draft))).passed}
        assert passing == {"oracle", "other_path"} | passes
    assert verifiers[verifier].__dict__["planted_gap"]
    assert "wrong on purpose" in str(inspect.getdoc(verifiers[verifier]))


def test_the_honest_verifier_is_not_marked_as_planted() -> None:
    assert "planted_gap" not in verifiers["desk_conditions"].__dict__


TASKS = generate(8, seed=11)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(TASKS), st.data())
def test_the_conditions_agree_with_the_end_state_of_the_reference(draft: BundleDraft, data: st.DataObject) -> None:
    """Two verifiers that share no code agree on parts and repetitions of the reference mixed with other writes."""
    tickets, addresses = sorted(draft.initial_state["tickets"]), [row["email"] for row in draft.initial_state["owners"].values()]
    mail = st.builds(
        lambda to, ticket_id: ("send_email", {"to": to, "subject": "s", "body": "b", "ticket_id": ticket_id}),
        st.sampled_from(addresses), st.sampled_from(tickets),
    )  # fmt: skip
    times = st.sampled_from([draft.initial_state["clock"]["now"], "2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z", None])
    fields = st.one_of(st.builds(lambda at: {"last_reminded_at": at}, times), st.just({"note": "x"}), st.just({"status": "closed"}))
    update = st.builds(lambda ticket_id, change: ("update_ticket", {"id": ticket_id, "fields": change}), st.sampled_from(tickets), fields)
    reference = [(name, json.loads(raw)) for turn in oracle(draft) for name, raw in turn.tool_calls]
    kept = data.draw(st.one_of(st.just(reference), st.lists(st.sampled_from(reference), max_size=12)))
    extra = data.draw(st.lists(mail | update, max_size=2))
    turns = [AssistantTurn(None, ((name, json.dumps(arguments)),)) for name, arguments in [*kept, *extra]]
    s0, s_end = played(draft, turns)
    assert judged("desk_conditions", draft, s0, s_end).passed == judged("end_state", draft, s0, s_end).passed
