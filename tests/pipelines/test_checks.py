"""The blocking checks: each passes on a healthy run and fails, with names, on the fault that it is for."""

import dagster as dg

from tests.pipelines.conftest import Site

CHECK_KEYS = {
    "worlds_hold": dg.AssetCheckKey(dg.AssetKey("world_checks"), "worlds_hold"),
    "every_bundle_is_decided": dg.AssetCheckKey(dg.AssetKey("admitted_bundles"), "every_bundle_is_decided"),
    "splits_are_disjoint": dg.AssetCheckKey(dg.AssetKey("admitted_bundles"), "splits_are_disjoint"),
    "every_slot_is_filled": dg.AssetCheckKey(dg.AssetKey("rollouts"), "every_slot_is_filled"),
    "oracles_succeed": dg.AssetCheckKey(dg.AssetKey("verdicts"), "oracles_succeed"),
    "nulls_have_reasons": dg.AssetCheckKey(dg.AssetKey("rewards"), "nulls_have_reasons"),
    "everybody_dispatched_is_in_the_batch": dg.AssetCheckKey(dg.AssetKey("training_batch"), "everybody_dispatched_is_in_the_batch"),
    "the_version_continues_the_one_before": dg.AssetCheckKey(dg.AssetKey("model_version"), "the_version_continues_the_one_before"),
    "read_models_hold": dg.AssetCheckKey(dg.AssetKey("rewards"), "read_models_hold"),
}


def checked(site: Site, key: str, name: str) -> dg.AssetCheckEvaluation:
    """The evaluation of one check without the assets before it; Dagster finds the partition only in a run that has an asset too."""
    selection = dg.AssetSelection.assets("task_bundles") | dg.AssetSelection.checks(CHECK_KEYS[name])
    (evaluation,) = site.run(key, selection).get_asset_check_evaluations()
    return evaluation


def test_all_checks_pass_on_a_healthy_run_and_those_of_one_run_are_blocking(site: Site) -> None:
    result = site.run(site.one_task("healthy"))
    assert result.success
    evaluations = {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}
    assert set(evaluations) == set(CHECK_KEYS)
    assert all(evaluation.passed for evaluation in evaluations.values())
    assert {name for name, evaluation in evaluations.items() if not evaluation.blocking} == {"read_models_hold"}


def test_a_task_that_its_harness_cannot_solve_is_stopped_by_the_gates(site: Site) -> None:
    result = site.run(site.one_task("cut_short", calls_per_turn=1))
    assert not result.success
    failed = [evaluation for evaluation in result.get_asset_check_evaluations() if not evaluation.passed]
    assert [evaluation.check_name for evaluation in failed] == ["every_bundle_is_decided"]
    assert failed[0].description == "0 of 1 bundles admitted, 1 rejected"
    assert "desk_7_0" in str(result.asset_materializations_for_node("bundle_checks")[0].metadata["rejected bundles"].value)
    assert not result.asset_materializations_for_node("rollouts")


def test_a_broken_oracle_is_named_and_its_rollouts_get_no_reward(site: Site) -> None:
    key = site.one_task("ungated_cut_short", calls_per_turn=1)
    selection = dg.AssetSelection.assets("worlds", "task_bundles", "rollouts", "verdicts", "rewards") | dg.AssetSelection.checks(
        CHECK_KEYS["oracles_succeed"]
    )
    result = site.run(key, selection)
    assert not result.success
    failed = [evaluation for evaluation in result.get_asset_check_evaluations() if not evaluation.passed]
    assert [evaluation.check_name for evaluation in failed] == ["oracles_succeed"]
    assert failed[0].description == "the oracle succeeded in 0 of 1 rollouts; but not on desk_7_0"
    assert result.asset_materializations_for_node("verdicts")
    assert not result.asset_materializations_for_node("rewards")


def test_a_slot_without_an_attempt_is_named(site: Site) -> None:
    key = site.one_task("unattempted")
    assert site.run(key, ["worlds", "task_bundles"]).success
    evaluation = checked(site, key, "every_slot_is_filled")
    assert not evaluation.passed
    assert evaluation.description == "0 of 1 expected slots have a counted attempt; without oracle on desk_7_0 #0"


def test_a_rollout_without_a_reward_has_no_recorded_reason(site: Site) -> None:
    key = site.one_task("unrewarded")
    assert site.run(key, ["worlds", "task_bundles", "rollouts", "verdicts"]).success
    evaluation = checked(site, key, "nulls_have_reasons")
    assert not evaluation.passed
    assert evaluation.metadata["unexplained"].value == 1


def test_bundles_that_no_gate_looked_at_are_named(site: Site) -> None:
    key = site.one_task("ungated", calls_per_turn=11)
    assert site.run(key, ["worlds", "task_bundles"]).success
    evaluation = checked(site, key, "every_bundle_is_decided")
    assert not evaluation.passed
    assert evaluation.description == "0 of 1 bundles admitted, 0 rejected; undecided: desk_7_0"
    assert evaluation.metadata["undecided"].value == 1
