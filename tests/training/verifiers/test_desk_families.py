"""The verifier of rules of any family: right ways pass, wrong ones fail by name, and each planted gap lets through what it should."""

import copy
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from ledger.bundle import BundleDraft
from ledger.errors import VerifierFailed
from training.verifiers import JudgeTask, Verdict, verifiers
from training.verifiers._desk_families import CONDITIONS
from training.worlds import ToolCall
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.synthesis import synthesize

DESK = TicketDesk()


@cache
def tasks() -> tuple[BundleDraft, ...]:
    return tuple(synthesize(104, seed=7))


def played(draft: BundleDraft, turns: Any) -> tuple[Any, Any]:
    first = state = DESK.reset(draft, seed=0)
    for call in (call for turn in turns for call in turn):
        state, observation = DESK.call(state, ToolCall(call["name"], call["arguments"]))
        assert observation.error_class is None, (draft.name, call, observation)
    return DESK.view(first), DESK.view(state)


def judged(verifier: str, draft: BundleDraft, s0: Any, s_end: Any) -> Verdict:
    return verifiers[verifier](s0, s_end, [], JudgeTask(draft, DESK.material))


def failed(verdict: Verdict) -> set[str]:
    return {condition.name for condition in verdict.conditions if condition.status == "failed" and condition.in_basis}


def test_the_reference_and_its_equivalents_pass_on_a_hundred_families() -> None:
    assert len({draft.provenance["family"] for draft in tasks()}) == 104
    for draft in tasks():
        assert draft.reference is not None
        assert len(draft.reference["equivalent"]) >= 2
        planted = ("desk_without_cooldown", "desk_without_side_effects", "desk_any_mail")
        for name, turns in [
            ("reference", draft.reference["turns"]),
            *((way["name"], way["turns"]) for way in draft.reference["equivalent"]),
        ]:
            s0, s_end = played(draft, turns)
            for verifier in ("desk_conditions", "end_state", *(planted if name == "batched" and draft.name.endswith("3") else ())):
                verdict = judged(verifier, draft, s0, s_end)
                assert verdict.passed is True, (draft.name, verifier, verdict)
                assert verdict.side_effects == ()


def test_wrong_ways_break_the_conditions_that_they_say_and_the_gaps_let_through_what_they_should() -> None:
    """The breaks come from the plans of the rules; the verifier reads states, on a path of its own."""
    let_through: Counter[str] = Counter()
    for number, draft in enumerate(tasks()):
        assert draft.reference is not None
        assert len(draft.reference["wrong"]) >= 4
        mailed = about(*played(draft, draft.reference["turns"]))
        for way in draft.reference["wrong"]:
            s0, s_end = played(draft, way["turns"])
            broken = failed(judged("desk_conditions", draft, s0, s_end))
            assert broken == set(way["breaks"]), (draft.name, way["name"])
            assert draft.reference["end_state"] != DESK.material(s_end)
            passing = {
                "desk_without_cooldown": broken == {"cooldown"},
                "desk_without_side_effects": broken == {"side_effects"},
                "desk_any_mail": broken <= {"mailed", "recipients"} and mailed <= about(s0, s_end),
            }
            for verifier, expected in passing.items() if number % 8 == 0 or any(passing.values()) else ():
                assert judged(verifier, draft, s0, s_end).passed is expected, (draft.name, verifier, way["name"])
                let_through[verifier] += expected
    assert min(let_through.values()) > 20


def about(s0: Any, s_end: Any) -> set[str]:
    """The tickets that new mails are about."""
    new = [mail for mail_id, mail in s_end["outbox"].items() if mail_id not in s0["outbox"]]
    return {ticket for mail in new for ticket in [mail["ticket_id"], *mail.get("also", [])]}


def test_doing_nothing_fails_on_every_family_with_every_verifier() -> None:
    for draft in tasks():
        s0, _ = played(draft, [])
        for verifier in ("desk_conditions", "desk_without_cooldown", "desk_without_side_effects", "desk_any_mail", "end_state"):
            assert judged(verifier, draft, s0, s0).passed is False, (draft.name, verifier)


def test_the_kinds_of_wrong_ways_that_a_desk_sees_are_all_there() -> None:
    kinds = Counter(way["name"] for draft in tasks() for way in (draft.reference or {})["wrong"])
    for kind in (
        "wrong_recipient", "duplicate", "skips_exception", "ignores_cooldown", "off_by_one", "over_writer", "misses_one", "wrong_order",
        "other_reading", "stale_limit", "ignores_tier", "ignores_limit", "wrong_zone", "splits_digest", "wrong_value",
    ):  # fmt: skip
        assert kinds[kind] >= 2, kind


def a_misled(error: str) -> tuple[BundleDraft, list[Any]]:
    """A task with an open point whose user errs in this way, and the calls of the policy that believes them."""
    draft = next(draft for draft in tasks() if "readings" in draft.spec)
    state = copy.deepcopy(draft.initial_state)
    state["user"]["facts"][0]["error"] = error
    turns = (draft.reference or {})["turns"]
    ask = next(call for call in turns[-1] if call["name"] == "ask_user")
    wrong = next(way for way in (draft.reference or {})["wrong"] if way["name"] == "other_reading")
    return replace(draft, initial_state=state), [[ask, *wrong["turns"][-1]]]


@pytest.mark.parametrize("error", ["wrong", "silent", "changes_mind"])
def test_who_follows_a_user_that_errs_has_not_failed_and_the_verdict_says_whose_error_it_is(error: str) -> None:
    draft, turns = a_misled(error)
    verdict = judged("desk_conditions", draft, *played(draft, turns))
    assert verdict.passed is None
    assert {condition.name for condition in verdict.conditions if condition.status == "failed"} == {"user_error"}
    assert verdict.conditions[-1].evidence["log"][0]["error"] == error
    assert any("user_error" in (condition.evidence or {}) for condition in verdict.conditions if condition.status == "error")


def test_a_policy_that_is_wrong_by_itself_is_not_excused_by_a_user_that_errs() -> None:
    draft, turns = a_misled("wrong")
    verdict = judged("desk_conditions", draft, *played(draft, [turns[0][:1]]))
    assert verdict.passed is False
    assert verdict.conditions[-1].name == "user_error"


def test_who_asks_again_and_hears_the_truth_is_held_to_it() -> None:
    draft, turns = a_misled("changes_mind")
    ask, *rest = turns[0]
    assert judged("desk_conditions", draft, *played(draft, [[ask, ask, *rest]])).passed is False
    right = [[ask, ask, *(draft.reference or {})["turns"][-1]]]
    assert judged("desk_conditions", draft, *played(draft, right)).passed is True


def test_without_an_error_of_the_user_the_other_reading_is_a_failure() -> None:
    draft = next(draft for draft in tasks() if "readings" in draft.spec)
    wrong = next(way for way in (draft.reference or {})["wrong"] if way["name"] == "other_reading")
    verdict = judged("desk_conditions", draft, *played(draft, wrong["turns"]))
    assert verdict.passed is False
    assert [condition.name for condition in verdict.conditions] == list(CONDITIONS)


def test_what_cannot_be_read_is_an_error_and_an_unknown_rule_is_refused() -> None:
    draft = tasks()[0]
    s0, s_end = played(draft, (draft.reference or {})["turns"])
    for view in (s0, s_end):
        for row in view["tickets"].values():
            row["opened_at"] = "last week"
    assert judged("desk_conditions", draft, s0, s_end).passed is not True
    with pytest.raises(VerifierFailed):
        judged("desk_conditions", draft, s0, {})
    rule = {**draft.spec["rule"], "when": {"kind": "Moon"}}
    with pytest.raises(VerifierFailed, match="Moon"):
        judged("desk_conditions", replace(draft, spec={"rule": rule}), s0, s_end)
