"""Rounds of legal and illegal calls, counted."""

from dataclasses import replace
from random import Random
from typing import Any

from audit.paths import Step
from audit.tool_calls import CallMaker, is_read
from audit.world_checks import world_checks
from audit.world_subject import Round, WorldSubject
from tests.audit.defective_worlds import CrashingDesk
from tests.audit.desk_gates import DESK, POLICY, drafts

LIMITS = POLICY.thresholds


def seen(world: Any = DESK, **more: Any) -> WorldSubject:
    limits = {"rounds_least": 100, "rounds_per_tool": 40, "rounds_most": 2000, **more}
    return WorldSubject(world, drafts()[:2], **limits)


def given(*outcomes: str) -> WorldSubject:
    """A subject with rounds of these outcomes, the tools' own not asked."""
    subject = seen()
    rounds = tuple(
        Round("get_owner", "legal" if outcome != "fail" else "wrong_type", Step(0, "get_owner", {}), outcome, "x", None, False, ())  # type: ignore[arg-type]
        for outcome in outcomes
    )
    subject.__dict__["rounds"] = rounds
    return subject


def test_seventy_passes_twenty_warnings_ten_failures_show_both_rates() -> None:
    subject = given(*["pass"] * 70, *["warning"] * 20, *["fail"] * 10)
    exercise = world_checks["world_exercise"](subject, {**LIMITS, "exercise_tools_accepted": 0.0})[0]
    # 70 of the 80 that were decided pass; 90 of 100 did not fail.
    assert (exercise.measured["pass_rate"], exercise.measured["not_failed"], exercise.status) == (0.875, 0.9, "pass")
    strict = world_checks["world_exercise"](subject, {**LIMITS, "exercise_tools_accepted": 0.0, "exercise_pass_rate": 0.9})[0]
    assert strict.status == "fail" and strict.reason.startswith("pass rate 0.875, needed 0.9;")


def test_every_tool_gets_twenty_legal_and_twenty_illegal_calls() -> None:
    rounds = seen().rounds
    assert len(rounds) == 200 and {item.outcome for item in rounds} == {"pass"}
    for tool in seen().tools:
        mine = [item.legal for item in rounds if item.tool == tool]
        assert (sum(mine), len(mine) - sum(mine)) == (20, 20)
    assert {item.kind for item in rounds} == {"recorded", "legal", "unknown_tool", "missing_argument", "wrong_type", "not_in_enum"}


def test_the_same_world_is_exercised_the_same() -> None:
    assert [item.as_json() for item in seen().rounds] == [item.as_json() for item in seen().rounds]
    assert [item.call for item in seen().rounds] != [item.call for item in replace(seen(), seed=1).rounds]


def test_a_crash_on_a_legal_call_is_found_though_the_rate_is_reached() -> None:
    exercise, held, _ = world_checks["world_exercise"](seen(CrashingDesk()), LIMITS)
    assert exercise.status == "pass" and exercise.measured["fail"] == held.measured["broke"] > 0
    assert held.status == "fail" and "KeyError: 'note'" in held.reason


def test_a_tool_that_never_carries_out_a_call_shows() -> None:
    class Closed(type(DESK)):  # type: ignore[misc]
        def call(self, state: Any, call: Any) -> Any:
            after, observation = super().call(state, replace(call, name="no_tool"))
            return after, observation

    exercise = world_checks["world_exercise"](seen(Closed()), LIMITS)[0]
    assert exercise.status == "fail" and "5 of 5 tools never carried out a legal call" in exercise.reason


def test_arguments_come_from_where_known_calls_take_theirs() -> None:
    draft = drafts()[0]
    known = [Step(0, call["name"], call["arguments"]) for call in (draft.reference or {})["turns"][0]]
    maker = CallMaker(DESK.tools(draft, turn=0), [draft.initial_state], known)
    addresses = {owner["email"] for owner in draft.initial_state["owners"].values()}
    rng = Random(1)
    made = [maker.legal("send_email", rng) for _ in range(20)]
    assert {call["to"] for call in made} <= addresses and len({call["to"] for call in made}) > 1
    assert {call["ticket_id"] for call in made} <= draft.initial_state["tickets"].keys()


def test_a_reading_tool_is_known_by_annotation_before_its_name() -> None:
    named = {"function": {"name": "get_owner"}}
    assert is_read(named) and not is_read({"function": {"name": "send_email"}})
    assert not is_read({**named, "annotations": {"readOnlyHint": False}})
    assert is_read({"function": {"name": "send", "annotations": {"readOnlyHint": True}}})
