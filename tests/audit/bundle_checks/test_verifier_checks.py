"""Checks of a verifier, with verifiers that are wrong in one way."""

import itertools
from dataclasses import replace
from typing import Any

from tests.audit.desk_gates import DESK, draft, drafts, ran, subject
from training.verifiers import Condition, Verdict, verifiers

desk_conditions = verifiers["desk_conditions"]


def with_judge(judge: Any, **more: Any) -> Any:
    return replace(subject(**more), judge=judge)


def test_the_kill_score_is_killed_mutants_over_mutants_that_end_elsewhere() -> None:
    result = ran("verifier_kill_score", subject())["verifier.kill_score"]
    assert result.status == "pass" and result.measured["score"] == 1.0
    assert (
        result.measured["killed"]
        == result.measured["mutants"]
        == sum(int(n.partition("/")[2]) for n in result.measured["per_kind"].values())
    )
    assert {kind.partition(" ")[0] for kind in result.measured["per_kind"]} >= {"drop", "duplicate", "change", "stray"}


def test_a_verifier_that_accepts_everything_kills_nothing() -> None:
    result = ran("verifier_kill_score", with_judge(lambda *_, ask=None: Verdict((Condition("yes", "passed", {"x": 1}),))))[
        "verifier.kill_score"
    ]
    assert result.status == "fail" and result.measured["score"] == 0.0
    assert set(result.measured["surviving_kinds"]) == set(result.measured["per_kind"])


def test_a_verifier_that_breaks_on_mutants_has_not_killed_them() -> None:
    def fragile(s0: Any, s_end: Any, trace: Any, task: Any, *, ask: Any = None) -> Verdict:
        if task.material(s_end) not in (task.draft.reference["end_state"], task.material(s0)):
            raise ZeroDivisionError("no such end")
        return desk_conditions(s0, s_end, trace, task)

    result = ran("verifier_kill_score", with_judge(fragile))["verifier.kill_score"]
    assert result.measured["killed"] == 0 and "ZeroDivisionError: no such end" in result.evidence[0]["verifier_error"]


def test_mutants_never_end_where_the_reference_ends() -> None:
    seen = subject()
    assert seen.reference is not None
    assert all(seen.changed(attempt) for _, attempt in seen.mutants)


def test_no_write_no_mutant() -> None:
    read_only = draft(reference={"turns": [[{"name": "query_tickets", "arguments": {}}]]})
    assert ran("verifier_kill_score", subject(read_only))["verifier.kill_score"].status == "skip"


def test_a_verifier_that_changes_its_mind_is_found_within_ten_runs() -> None:
    count = itertools.count()

    def moody(s0: Any, s_end: Any, trace: Any, task: Any, *, ask: Any = None) -> Verdict:
        verdict = desk_conditions(s0, s_end, trace, task)
        return Verdict((), error="tired") if next(count) % 4 == 3 else verdict

    found = ran("verifier_repeats", with_judge(moody))["semantic.verifier_determinism"]
    assert found.status == "fail" and found.measured["runs"] == 10
    assert ran("verifier_repeats", subject())["semantic.verifier_determinism"].status == "pass"


def test_a_verifier_that_needs_more_than_json_is_not_portable() -> None:
    def by_tuple(s0: Any, s_end: Any, trace: Any, task: Any, *, ask: Any = None) -> Verdict:
        verdict = desk_conditions(s0, s_end, trace, task)
        live = any("tuple" in type(step.call.arguments.get("marks")).__name__ for step in trace)
        return verdict if live or not trace else Verdict((Condition("live", "failed", {"live": live}),))

    calls = [dict(call) for call in (drafts()[0].reference or {})["turns"][0]]
    calls.append({"name": "get_owner", "arguments": {"owner_id": "O1", "marks": ("a",)}})
    made = draft(reference={**(drafts()[0].reference or {}), "turns": [calls]})
    assert ran("verifier_repeats", with_judge(by_tuple, made=made))["semantic.verifier_portability"].status == "fail"


def test_equivalent_paths_are_accepted_and_wrong_ones_break_what_they_say() -> None:
    calls = (drafts()[0].reference or {})["turns"][0]
    swapped = [calls[0], calls[0], *calls[1:]]
    declared = {
        **(drafts()[0].reference or {}),
        "equivalent": [{"name": "asks twice", "turns": [swapped]}],
        "wrong": [{"name": "does half", "turns": [calls[:2]], "breaks": ["C1"]}],
    }
    results = ran("verifier_paths", subject(draft(reference=declared)))
    assert {result.status for result in results.values()} == {"pass"}
    turned = {**declared, "equivalent": [{"name": "does half", "turns": [calls[:2]]}], "wrong": [{"name": "right", "turns": [calls]}]}
    results = ran("verifier_paths", subject(draft(reference=turned)))
    assert "path does half" in results["verifier.equivalent_paths_accepted"].reason
    assert "path right" in results["verifier.wrong_paths_rejected"].reason
    misnamed = {**declared, "wrong": [{"name": "does half", "turns": [calls[:2]], "breaks": ["C5"]}]}
    assert "unbroken ['C5']" in ran("verifier_paths", subject(draft(reference=misnamed)))["verifier.wrong_paths_rejected"].reason
    unknown = {**declared, "wrong": [{"name": "does half", "turns": [calls[:2]], "breaks": ["C9"]}]}
    result = ran("runtime_task_declaration_accuracy", subject(draft(reference=unknown)))["runtime.task_declaration_accuracy"]
    assert "breaks C9" in result.reason


def test_a_condition_without_evidence_fails() -> None:
    def silent(s0: Any, s_end: Any, trace: Any, task: Any, *, ask: Any = None) -> Verdict:
        verdict = desk_conditions(s0, s_end, trace, task)
        return Verdict(tuple(replace(item, evidence={} if item.name == "C3" else item.evidence) for item in verdict.conditions))

    result = ran("verifier_evidence_present", with_judge(silent))["verifier.evidence_present"]
    assert result.reason == "a condition shows nothing: path reference, condition C3, evidence {}"


def test_a_broken_verifier_never_becomes_a_number() -> None:
    seen = subject()
    assert ran("runtime_reward_well_formed", seen)["runtime.reward_well_formed"].measured["rewards"] == {"reference": 1.0, "no_op": 0.0}

    def zero_for_errors(view_R: Any) -> Any:
        scored = seen.reward(view_R)
        return replace(scored, value_R=tuple(0.0 if value is None else value for value in scored.value_R))

    def truths(view_R: Any) -> Any:
        scored = seen.reward(view_R)
        return replace(scored, value_R=tuple(None if value is None else bool(value) for value in scored.value_R))

    bad = ran("runtime_reward_well_formed", replace(subject(), reward=zero_for_errors))["runtime.reward_well_formed"]
    assert bad.reason == "a reward has no allowed form: path a verifier that broke, reward 0.0, allowed null"
    assert "reward True" in ran("runtime_reward_well_formed", replace(subject(), reward=truths))["runtime.reward_well_formed"].reason


def test_a_declared_wrong_path_that_earns_as_much_leaves_no_gap() -> None:
    calls = (drafts()[0].reference or {})["turns"][0]
    made = draft(reference={**(drafts()[0].reference or {}), "wrong": [{"name": "the same", "turns": [calls]}]})
    result = ran("floor", subject(made))["semantic.floor_gap"]
    assert result.reason.startswith("the reference earns 0.000 more than the best wrong path, needed 0.5: path the same")


def test_a_state_that_changes_when_it_is_looked_at_breaks_the_contract() -> None:
    class Looked(type(DESK)):  # type: ignore[misc]
        looks = 0

        def view(self, state: Any) -> Any:
            Looked.looks += 1
            return super().view(state)

        def digest(self, state: Any) -> str:
            return f"{Looked.looks:064d}"

    result = ran("runtime_state_contract", subject(world=Looked()))["runtime.state_contract"]
    assert result.status == "fail" and "looking at the first state changes it" in result.reason


def test_rollouts_tell_whether_a_task_can_be_won_and_learned_from() -> None:
    def line(policy: str, reward: float, group: str, kind: str = "ordinary") -> Any:
        class Line:
            pass

        made = Line()
        made.__dict__.update(
            outcome="succeeded", reward=reward, policy=policy, group_id=group, rollout_kind=kind, rollout_id=f"{policy}-{reward}"
        )
        return made

    few = ran("statistical", replace(subject(), rollouts=[line("a", 1.0, "g")]))
    assert {result.status for result in few.values()} == {"skip"}
    mixed = [line("a", value, "g1") for value in (0.0, 1.0, 1.0, 0.0)] + [line("b", 0.0, "g2")] * 4
    results = ran("statistical", replace(subject(), rollouts=mixed))
    assert results["statistical.difficulty_separation"].measured["mean_by_policy"] == {"a": 0.5, "b": 0.0}
    # Four rewards, two of them 1: variance 0.25 about their mean.
    assert results["statistical.training_signal"].measured["variance"] == 0.25
    assert {result.status for result in results.values()} == {"pass"}
    gamed = ran("statistical", replace(subject(), rollouts=[*mixed, line("c", 1.0, "g3", "probe")]))
    assert gamed["statistical.adversarial_floor"].status == "fail"
    lost = ran("statistical", replace(subject(), rollouts=[line("a", 0.0, "g")] * 8))
    assert lost["statistical.reward_reachability"].reason == "nobody has won: no rollout earned anything"
