"""Claim checks: each boundary of a published number is seen where it is crossed, and nowhere else."""

from dataclasses import replace

import pytest

from audit.claim_checks import claim_checks
from audit.results import CheckResult
from audit.run import check_ids
from audit.severity import load_policy
from audit.statements import Statement

POLICY = load_policy("v1", kind="claim")
PLAIN = Statement("claimed", "c1", "e1", "claim-c1", "a system", "score", 1.0, None, None, None, "", None, "doi:1")


def check(name: str, **changes) -> CheckResult:
    (result,) = claim_checks[name](replace(PLAIN, **changes), POLICY.thresholds)
    return result


def arms(**factors) -> dict:
    """Settings of arms a and b: a factor's pair of values."""
    return {f"arm.{arm}.{name}": pair[n] for name, pair in factors.items() for n, arm in enumerate("ab")}


FAILS = {
    "comparison_confounded": {"compared": True, "axis": "tokens", "settings": arms(method=("x", "y"), harness=("h1", "h2"))},
    "agreement_used_as_accuracy": {"metric": "accuracy", "settings": {"truth": "majority vote"}},
    "ci_without_level": {"value": 34.6, "low": 32.7, "high": 36.5},
    "pass_at_1_mixed_with_best_of_k": {"metric": "pass@1", "value": 70.8, "settings": {"k": 8, "selector": "simulator"}},
    "reported_total_vs_released": {"settings": {"reported_total": 1978, "released_total": 563}},
    "small_pool_as_evaluation": {"metric": "success", "settings": {"tasks": 16}},
    "auroc_without_controls": {"metric": "AUROC", "value": 0.85},
    "critical_path_without_total_work": {"metric": "critical_path", "value": 13.0, "settings": {"cost": 3}},
    "increments_skip_sft": {"value": 13.0, "settings": {"stage.1.base": 28.88, "stage.2.sft": 37.0, "stage.3.rl": 41.88, "gain_of": "rl"}},
    "missing_safety_fields": {"metric": "success", "card": frozenset({"success", "side_effects"})},
    "reproduction_card_incomplete": {"settings": {"repro.data": "have"}},
    "prediction_outside_range": {"settings": {"at.tasks": 5000, "fitted.tasks.low": 10, "fitted.tasks.high": 1000}},
    "memory_without_equal_budget": {"metric": "memory gain", "settings": {"arm.off.tokens": 100, "arm.files.tokens": 100}},
    "train_eval_share_judge": {"settings": {"train.simulated_user": "gpt-x", "eval.simulated_user": "GPT-X"}},
    "denominator_disclosed": {"metric": "success", "value": 0.889},
}  # fmt: skip
PASSES = {
    "comparison_confounded": {"compared": True, "axis": "tokens", "settings": arms(method=("x", "y"), harness=("h1", "h1"))},
    "agreement_used_as_accuracy": {"metric": "accuracy", "settings": {"truth": "executable tests"}},
    "ci_without_level": {"value": 34.6, "low": 32.7, "high": 36.5, "level": 0.95},
    "pass_at_1_mixed_with_best_of_k": {"metric": "pass@1", "value": 61.4, "settings": {"k": 1, "selector": "none"}},
    "reported_total_vs_released": {"settings": {"reported_total": 563, "released_total": 563, "used_total": 563}},
    "small_pool_as_evaluation": {"metric": "success", "settings": {"tasks": 16, "purpose": "diagnostic"}},
    "auroc_without_controls": {"metric": "AUROC", "value": 0.85, "settings": {"texture_only": 0.769, "residual": 0.626, "entropy_baseline": 0.741}},
    "critical_path_without_total_work": {"metric": "critical_path", "value": 13.0, "settings": {"cost": 3, "total_work": 22}},
    "increments_skip_sft": {"value": 4.88, "settings": {"stage.1.base": 28.88, "stage.2.sft": 37.0, "stage.3.rl": 41.88, "gain_of": "rl"}},
    "missing_safety_fields": {"metric": "success", "card": frozenset({
        "success", "condition:mailed", "side_effects", "recovery", "latency_mean", "latency_p95", "tokens_out",
    })},
    "reproduction_card_incomplete": {"settings": {f"repro.{part}": "not_checked" for part in (
        "data", "initial_environment", "tool_image", "reward", "training_script", "weights", "evaluation_harness", "compute",
        "policy_version", "prompts", "logprobs", "cache_and_reset",
    )}},
    "prediction_outside_range": {"settings": {"at.tasks": 500, "fitted.tasks.low": 10, "fitted.tasks.high": 1000}},
    "memory_without_equal_budget": {"metric": "memory gain", "settings": {f"arm.{arm}.tokens": 100 for arm in ("off", "summary", "files")}},
    "train_eval_share_judge": {"settings": {"train.judge": "a", "eval.judge": "b"}},
    "denominator_disclosed": {"metric": "success", "value": 0.889, "settings": {
        "expected": 100, "measured": 90, "failed": 10, "passed": 80,
    }},
}  # fmt: skip


def test_every_check_has_its_case_and_its_severity() -> None:
    ids = {check_id for name in claim_checks.names() for check_id in check_ids(claim_checks.bind(name))}
    assert set(claim_checks.names()) == FAILS.keys() == PASSES.keys() == ids == set(POLICY.severity)


@pytest.mark.parametrize("name", sorted(FAILS))
def test_a_boundary_that_is_crossed_is_a_failure_with_its_event(name: str) -> None:
    result = check(name, **FAILS[name])
    assert (result.status, result.evidence_event_ids) == ("fail", ("e1",)) and result.reason and result.remedy


@pytest.mark.parametrize("name", sorted(PASSES))
def test_a_boundary_that_is_kept_is_a_pass(name: str) -> None:
    assert check(name, **PASSES[name]).status == "pass"


@pytest.mark.parametrize("name", sorted(FAILS))
def test_a_number_that_says_nothing_of_it_is_skipped_with_the_reason(name: str) -> None:
    result = check(name)
    assert result.status == "skip" and result.reason


def test_a13_both_denominators_of_80_of_100_with_10_errors() -> None:
    told = check("denominator_disclosed", **PASSES["denominator_disclosed"]).measured
    assert (told["of_expected"], round(told["of_measured"], 3), told["unknown"]) == (0.8, 0.889, 0)


def test_a13_one_right_and_one_that_raised_and_was_scored_is_a_half_of_two() -> None:
    settings = {"expected": 2, "measured": 2, "passed": 1}
    assert check("denominator_disclosed", metric="accuracy", value=0.5, settings=settings).measured["of_measured"] == 0.5
    assert check("denominator_disclosed", metric="accuracy", value=1.0, settings=settings).status == "fail"


def test_a13_more_than_was_expected_cannot_have_been_counted() -> None:
    settings = {"expected": 10, "measured": 9, "failed": 2}
    assert check("denominator_disclosed", metric="success", settings=settings).status == "fail"


def test_aud_35_updates_are_not_compute_and_no_axis_is_no_comparison() -> None:
    same = arms(method=("x", "y"))
    assert check("comparison_confounded", compared=True, axis="updates", metric="compute saved", settings=same).status == "fail"
    assert check("comparison_confounded", compared=True, axis=None, settings=same).status == "fail"


def test_aud_43_p1_thirteen_points_are_not_all_of_rl() -> None:
    result = check("increments_skip_sft", **FAILS["increments_skip_sft"])
    assert "13" in result.reason and "4.88" in result.reason
    skipped = check("increments_skip_sft", value=13.0, settings={"stage.1.base": 28.88, "stage.2.rl": 41.88, "gain_of": "rl"})
    assert "'sft' before 'rl'" in skipped.reason


def test_aud_42_a_score_with_nothing_left_beside_depth_is_flagged() -> None:
    settings = {"texture_only": 0.80, "residual": 0.497, "entropy_baseline": 0.7}
    assert check("auroc_without_controls", metric="auroc", value=0.798, settings=settings).status == "fail"


def test_aud_20_arms_of_different_k_and_aud_36_a_value_outside_its_interval() -> None:
    assert check("pass_at_1_mixed_with_best_of_k", settings=arms(k=(1, 8))).status == "fail"
    assert check("ci_without_level", value=40.0, low=1.0, high=2.0, level=0.95).status == "fail"


def test_aud_29_unequal_budgets_and_aud_26_a_path_longer_than_the_work() -> None:
    unequal = {"arm.off.tokens": 100, "arm.summary.tokens": 100, "arm.files.tokens": 130}
    assert check("memory_without_equal_budget", metric="memory gain", settings=unequal).status == "fail"
    settings = {"cost": 1, "total_work": 12}
    assert check("critical_path_without_total_work", metric="critical_path", value=13.0, settings=settings).status == "fail"


def test_aud_44_several_agents_need_path_and_work() -> None:
    card = PASSES["missing_safety_fields"]
    assert check("missing_safety_fields", **card, settings={"agents": 3}).measured["missing"] == ["critical path", "total work"]
