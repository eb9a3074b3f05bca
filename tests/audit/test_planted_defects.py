"""Every planted defect is rejected by the check that is meant for it, and named."""

from dataclasses import replace
from typing import Any

import pytest

from tests.audit.defective_worlds import (
    CarelessDesk,
    CrashingDesk,
    DriftingDesk,
    ForgetfulDesk,
    LeakyDesk,
    SeededDesk,
    SeedlessDesk,
    WritingReader,
)
from tests.audit.desk_gates import decided, draft, drafts, world_gate
from training.verifiers import Condition, Verdict


def reference(**changes: Any) -> dict[str, Any]:
    return {**(drafts()[0].reference or {}), **changes}


def calls() -> list[dict[str, Any]]:
    return list(reference()["turns"][0])


def without(name: str) -> list[list[dict[str, Any]]]:
    made = calls()
    made.remove(next(call for call in made if call["name"] == name))
    return [made]


def test_a_sound_task_in_a_sound_world_with_a_sound_verifier_is_admitted() -> None:
    decision = decided()
    assert decision.admitted and decision.blocking == ()
    assert {name: decision.results[name].status for name in ("semantic.oracle_max", "world.exercise", "verifier.kill_score")} == {
        "semantic.oracle_max": "pass", "world.exercise": "pass", "verifier.kill_score": "pass",
    }  # fmt: skip


WORLDS = [
    (SeedlessDesk, "runtime.seed_control", "5 seeds give one and the same episode"),
    (DriftingDesk, "runtime.seed_control", "reset does not obey its seed: seed 0"),
    (ForgetfulDesk, "runtime.episode_determinism", "episodes differ"),
    (LeakyDesk, "runtime.episode_isolation", "the next reset"),
    (WritingReader, "world.reads_do_not_write", "reads changed the state: tool get_owner"),
    (CrashingDesk, "world.legal_calls_hold", "legal calls broke the world, needed 0: tool update_ticket"),
]


@pytest.mark.parametrize(("make", "check", "said"), WORLDS, ids=[make.__name__ for make, _, _ in WORLDS])
def test_a_defective_world_is_named(make: Any, check: str, said: str) -> None:
    decision = decided(world=make())
    assert check in decision.blocking
    assert said in decision.results[check].reason
    assert decision.results[check].remedy and decision.results[check].evidence


def test_a_world_that_obeys_its_seed_passes_where_it_says_that_it_is_random() -> None:
    result = decided(world=SeededDesk()).results["runtime.seed_control"]
    assert (result.status, result.measured["distinct_episodes"]) == ("pass", 5)


def test_carried_out_illegal_calls_fail_rounds_and_are_listed_as_a_warning() -> None:
    gate = world_gate(CarelessDesk)
    exercise, refused = gate.results["world.exercise"], gate.results["world.illegal_calls_refused"]
    assert refused.status == "fail" and "kind wrong_type" in refused.reason
    assert exercise.measured["fail"] == refused.measured["failed"] > 0
    assert "world.illegal_calls_refused" not in gate.blocking


def test_what_depends_on_a_failed_check_is_skipped_and_names_it() -> None:
    decision = decided(world=ForgetfulDesk())
    for name in ("semantic.oracle_max", "semantic.verifier_determinism", "verifier.kill_score", "task.shallow_path"):
        result = decision.results[name]
        assert (result.status, result.depends_on) == ("skip", "runtime.episode_determinism"), name
        assert result.reason.startswith("depends on runtime.episode_determinism, which is fail: episodes differ")
        assert name not in decision.blocking


TASKS = [
    ("no solution", draft(reference=None), "semantic.oracle_max", "there is no reference solution"),
    ("a solution that does not solve", draft(reference=reference(turns=without("send_email"))), "semantic.oracle_max", "not accepted"),
    (
        "an end that the calls do not reach", draft(reference=reference(turns=without("update_ticket"))),
        "semantic.replayability", "do not lead to its end state: path /tickets/",
    ),
    (
        "a hint with an id", draft(hint=f"Mail the owner of {calls()[-1]['arguments']['id']}."), "hint.no_literal_state",
        f"the hint holds a value of the state: literal {calls()[-1]['arguments']['id']}",
    ),
    (
        "an unpinned package", draft(provenance={**drafts()[0].provenance, "dependencies": ["numpy>=2"]}), "static.dependency_pinning",
        "place provenance.dependencies, seen numpy>=2",
    ),
    (
        "no seed and no source", draft(provenance={"proposer": "x", "licence": "MIT", "seed": None}), "static.task_distribution_pinning",
        "cannot be drawn again",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("made", "check", "said"), [row[1:] for row in TASKS], ids=[row[0] for row in TASKS])
def test_a_defective_task_is_named(made: Any, check: str, said: str) -> None:
    decision = decided(made)
    assert check in decision.blocking
    assert said in decision.results[check].reason


def test_the_same_words_for_two_ends_are_ambiguous_on_both_sides() -> None:
    one = drafts()[0]
    other = replace(one, name="twin", spec={**one.spec, "cooldown_hours": 1}, reference=reference(end_state={"tickets": {}}))
    decision = decided(one, among=[other])
    assert decision.blocking == ("task.ambiguity",)
    assert "the text has two meanings: same_text_as twin, differs ['/outbox'" in decision.results["task.ambiguity"].reason


def test_the_same_words_under_another_rule_are_ambiguous_when_that_rule_rejects_the_end() -> None:
    one = drafts()[0]
    stricter = replace(one, name="twin", spec={**one.spec, "older_than_days": 1000}, initial_state={**one.initial_state, "call_log": []})
    same = replace(one, name="copy", spec={**one.spec, "more": 1})
    assert "its_spec" in decided(one, among=[stricter]).results["task.ambiguity"].reason
    assert decided(one, among=[same]).results["task.ambiguity"].status == "pass"


def test_a_declared_second_reading_is_ambiguous_unless_the_user_settles_it() -> None:
    reading = {"name": "mail nobody", "turns": [[]]}
    open_ = decided(draft(reference=reference(readings=[reading])))
    settled = decided(draft(reference=reference(readings=[{**reading, "settled_by": "ask_user"}])))
    assert "reading mail nobody" in open_.results["task.ambiguity"].reason and "task.ambiguity" in open_.blocking
    assert settled.admitted


def any_mail_will_do(s0: Any, s_end: Any, trace: Any, task: Any, *, ask: Any = None) -> Verdict:
    sent = len(s_end["outbox"]) - len(s0["outbox"])
    return Verdict((Condition("mail", "passed" if sent else "failed", {"sent": sent}),))


def test_a_short_cut_is_rejected_with_the_shortest_path_found() -> None:
    made = next(item for item in drafts() if sum(call["name"] == "send_email" for call in (item.reference or {})["turns"][0]) > 1)
    result = decided(made, judge=any_mail_will_do).results["task.shallow_path"]
    assert result.status == "fail" and result.reason.startswith("there is a short cut: state_changes 1")
    assert [call["name"] for call in result.evidence[0]["calls"] if call["name"] in ("send_email", "update_ticket")] == ["send_email"]
    assert decided(made).results["task.shallow_path"].status == "pass"


def test_a_task_that_is_done_already_is_rejected_by_every_floor_check() -> None:
    end = draft().initial_state
    made = draft(spec={**draft().spec, "older_than_days": 10000}, reference={"turns": [[calls()[0]]], "end_state": None}, initial_state=end)
    blocking = decided(made).blocking
    assert {"semantic.canary_floor", "semantic.floor_gap", "task.final_state_test_fails_on_s0"} <= set(blocking)


VERIFIERS = [
    ("desk_without_cooldown", "duplicate send_email"),
    ("desk_without_side_effects", "stray update_ticket"),
    ("desk_any_mail", "change send_email.to"),
]


@pytest.mark.parametrize(("verifier", "kind"), VERIFIERS, ids=["V-dup", "V-side", "V-wrong"])
@pytest.mark.parametrize("number", range(2))
def test_a_verifier_with_a_gap_falls_below_the_kill_score_and_the_gap_is_named(verifier: str, kind: str, number: int) -> None:
    decision = decided(drafts()[number], verifier=verifier)
    result = decision.results["verifier.kill_score"]
    assert "verifier.kill_score" in decision.blocking
    assert kind in result.measured["surviving_kinds"] and kind in result.reason
    assert result.evidence[0]["differs"]


def test_a_verifier_that_sees_no_side_effect_is_named_by_the_check_for_it_too() -> None:
    result = decided(verifier="desk_without_side_effects").results["verifier.side_effects_seen"]
    assert result.status == "fail" and "'name': 'update_ticket'" in result.reason
    assert decided().results["verifier.side_effects_seen"].status == "pass"


def test_the_solution_in_the_request_or_in_the_state_is_a_leak() -> None:
    mail = next(call for call in calls() if call["name"] == "send_email")
    words = f"send_email {mail['arguments']}"
    told = draft(request={**draft().request, "turns": [[{"role": "user", "content": f"Do this: {words}"}]]})
    assert "place request" in decided(told).results["semantic.no_solution_leakage"].reason
    state = draft().initial_state
    first = next(iter(state["tickets"]))
    noted = {**state, "tickets": {**state["tickets"], first: {**state["tickets"][first], "note": words}}}
    found = decided(draft(initial_state=noted, reference=reference(end_state=None))).results
    assert "place initial state" in found["runtime.oracle_containment"].reason
    assert found["semantic.no_solution_leakage"].status == "pass"


def test_a_copy_in_a_held_out_split_rejects_the_less_held_out_one() -> None:
    one = drafts()[0]
    copy = replace(one, name="copy", split="test", request={**one.request, "system": "Another system prompt."})
    train, test = decided(one, among=[copy]), decided(copy, among=[one])
    assert train.blocking == ("split.digest_leak", "split.ngram_leak")
    assert train.results["split.ngram_leak"].measured["share"] == 1.0
    assert "held_out_task copy" in train.results["split.ngram_leak"].reason
    assert test.results["split.ngram_leak"].status == "pass"


def test_one_family_in_two_splits_is_a_leak() -> None:
    one = draft(provenance={**draft().provenance, "family": "f1"})
    other = replace(drafts()[5], split="validation", provenance={**drafts()[5].provenance, "family": "f1"})
    result = decided(one, among=[other]).results["split.digest_leak"]
    assert result.status == "fail" and "same family f1" in result.reason
    assert decided(one, among=[replace(other, split="train")]).results["split.digest_leak"].status == "pass"
