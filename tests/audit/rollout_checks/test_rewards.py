"""Checks of verdicts and rewards, of attempts and of groups, each with its golden case and its legal neighbour."""

from dataclasses import replace
from typing import Any

from audit.rollout_subject import Sibling
from ledger.events.verdict import ConditionResult
from tests.audit.rollout_subjects import HEALTHY, checked, failed, rollout, state, status


def conditions(*given: tuple[str, bool]) -> list[ConditionResult]:
    return [ConditionResult(name=f"C{n}", status=one, in_basis=basis, evidence=None) for n, (one, basis) in enumerate(given)]  # type: ignore[arg-type]


ERROR: dict[str, Any] = {"status": "error", "passed": None, "conditions": []}
FAILED: dict[str, Any] = {"passed": False, "conditions": conditions(("failed", True))}


def test_i1_a_reward_that_was_written_before_the_verdict_fails() -> None:
    failed(rollout(reward_first=True), "reward_written_before_verify", "reward_before_verification")
    assert status(rollout(), "reward_written_before_verify") == "pass"
    assert status(rollout(rewards=()), "reward_written_before_verify") == "skip"


def test_i1_a_reward_out_of_its_range_fails() -> None:
    for value in (1.5, -0.1):
        failed(rollout(rewards=({"value": value},)), "reward_in_range", "reward_out_of_range")
    for value in (0.0, 0.4, 1.0):
        assert status(rollout(rewards=({"value": value},)), "reward_in_range") == "pass"
    assert status(rollout(rewards=({"value": None},)), "reward_in_range") == "skip"


def test_a3_a_zero_without_a_verdict_fails_verdict_present_and_a_written_zero_does_not() -> None:
    nothing = rollout(verdicts=(), rewards=({"value": 0.0, "verdict_ids": []},))
    failed(nothing, "verdict.present", "reward_without_verdict")
    failed(rollout(verdicts=(), rewards=({"value": 0.0, "verdict_ids": ["gone"]},)), "verdict.present", "reward_without_verdict")
    honest = rollout(verdicts=(FAILED,), rewards=({"value": 0.0},))
    assert status(honest, "verdict.present") == "pass" and status(honest, "reward_none_coerced") == "pass"
    assert status(rollout(verdicts=(), rewards=({"value": None, "verdict_ids": []},)), "verdict.present") == "skip"


def test_a7_b9_a_verifier_that_crashed_and_a_reward_of_zero_fail_reward_none_coerced() -> None:
    failed(rollout(verdicts=(ERROR,), rewards=({"value": 0.0},)), "reward_none_coerced", "reward_coerced")
    assert status(rollout(verdicts=(ERROR,), rewards=({"value": None},)), "reward_none_coerced") == "skip"
    assert status(rollout(verdicts=(ERROR, {}), rewards=({"value": 1.0},)), "reward_none_coerced") == "pass"


def test_a13_a_reward_of_a_rollout_that_broke_fails_and_that_of_one_cut_by_a_limit_does_not() -> None:
    for ended_by, fault in (("world_error", "world_crashed"), ("engine_error", "engine_failed"), ("harness_error", "harness_crashed")):
        failed(rollout(ended={"ended_by": ended_by}, rewards=({"value": 0.0},)), "scored_with_exception", fault)
    assert status(rollout(ended={"ended_by": "turn_limit"}, rewards=({"value": 0.0},)), "scored_with_exception") == "pass"
    assert status(rollout(ended={"ended_by": "world_error"}, rewards=({"value": None},)), "scored_with_exception") == "pass"
    assert status(rollout(rewards=()), "scored_with_exception") == "skip"


def test_h3_a_verdict_without_conditions_fails() -> None:
    failed(rollout(verdicts=({"conditions": []},)), "verdict_details_present", "verdict_incomplete")
    silent = rollout(verdicts=({"passed": False},))
    failed(silent, "verdict_details_present", "verdict_incomplete")
    assert status(rollout(verdicts=({"passed": False, "side_effect_count": 1},)), "verdict_details_present") == "pass"
    assert status(rollout(), "verdict_details_present") == "pass"
    assert status(rollout(verdicts=(ERROR,)), "verdict_details_present") == "skip"


def test_i2_a_test_that_is_missing_is_no_pass() -> None:
    for missing in ([], conditions(("error", True)), conditions(("passed", False))):
        failed(rollout(verdicts=({"passed": True, "conditions": missing},)), "missing_test_is_not_pass", "false_accept")
    assert status(rollout(), "missing_test_is_not_pass") == "pass"
    assert status(rollout(verdicts=(FAILED,)), "missing_test_is_not_pass") == "skip"


def test_i6_a_reward_of_1_with_a_failed_condition_beside_is_a_remark_that_blames_nobody() -> None:
    beside = rollout(verdicts=({"conditions": conditions(("passed", True), ("failed", False))},))
    assert failed(beside, "subcheck_vs_reward", None).evidence[0]["failed_beside"] == ["C1"]
    failed(rollout(rewards=({"value": 0.0},)), "subcheck_vs_reward", None)
    assert status(rollout(), "subcheck_vs_reward") == "pass"
    assert status(rollout(verdicts=(FAILED,), rewards=({"value": 0.0},)), "subcheck_vs_reward") == "pass"
    assert status(rollout(rewards=()), "subcheck_vs_reward") == "skip"


def test_h4_a_reward_without_any_call_fails() -> None:
    failed(rollout([], ()), "reward_without_trace", "capture_gap")
    failed(rollout(running=True), "reward_without_trace", "capture_gap")
    assert status(rollout(), "reward_without_trace") == "pass"
    assert status(rollout([], (), rewards=()), "reward_without_trace") == "skip"


def sibling(n: int, **given: Any) -> Sibling:
    return Sibling(**{"rollout_id": f"s{n}", "slot": n, "attempt": 1, "started_id": f"start-{n}", "ended": True, **given})


def test_g2_a_late_result_of_an_older_attempt_that_counts_fails() -> None:
    later = sibling(0, attempt=2)
    failed(rollout(siblings=[later]), "late_attempt_not_counted", "late_attempt")
    assert status(rollout(siblings=[later], ended={"superseded": True}), "late_attempt_not_counted") == "pass"
    broke = rollout(siblings=[later], ended={"ended_by": "world_error"}, rewards=({"value": None},))
    assert status(broke, "late_attempt_not_counted") == "pass"
    assert status(rollout(siblings=[replace(later, superseded=True)]), "late_attempt_not_counted") == "pass"
    assert status(rollout(siblings=[sibling(1)]), "late_attempt_not_counted") == "skip"


def test_a15_two_rollouts_that_are_the_same_attempt_fail() -> None:
    failed(rollout(siblings=[sibling(0)]), "attempt_id_unique", "ids_not_unique")
    assert status(rollout(siblings=[sibling(0, attempt=2), sibling(1)]), "attempt_id_unique") == "pass"


def test_g5_a_rollout_of_another_task_than_its_group_fails() -> None:
    failed(rollout(group={"bundle_id": "d" * 64}), "id_uniqueness", "ids_not_unique")
    failed(rollout(group={"size": 1}, started={"slot": 1}), "id_uniqueness", "ids_not_unique")
    assert status(rollout(), "id_uniqueness") == "pass"


def test_m1_a_group_that_began_in_two_states_fails_in_the_fewer() -> None:
    same = [sibling(n, state=state("0"), state_id=f"state-{n}") for n in (1, 2)]
    other = [replace(one, state=state("x")) for one in same]
    failed(rollout(siblings=other), "group_same_s0", "wrong_reset")
    failed(rollout(siblings=other[:1]), "group_same_s0", "wrong_reset")
    assert status(rollout(siblings=same), "group_same_s0") == "pass"
    assert status(rollout(siblings=[*same, other[0]]), "group_same_s0") == "pass"
    branch = [replace(one, origin=("parent", 3)) for one in other]
    assert status(rollout(siblings=branch), "group_same_s0") == "skip"


def test_m3_two_unlikely_samples_that_are_the_same_fail_and_two_sure_ones_do_not() -> None:
    def beside(logprob: float) -> Any:
        calls = [replace(call, logprobs=[logprob] * len(call.sampled)) for call in HEALTHY]
        mine = tuple(call.answered.sampled_ids.commitment for call in rollout(calls).calls)  # type: ignore[union-attr]
        return rollout(calls, siblings=[sibling(1, sampled=mine), sibling(2, sampled=("x",))])

    assert failed(beside(-4.0), "identical_completions_in_group", "seed_shared").measured["alike"] == 1
    assert checked(beside(-0.1), "identical_completions_in_group").measured["alike"] == 1
    assert status(beside(-0.1), "identical_completions_in_group") == "pass"
    assert status(rollout(siblings=[sibling(1)]), "identical_completions_in_group") == "skip"
