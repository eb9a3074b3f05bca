"""The code location loads, and its graph, pool and checks are as declared."""

import dagster as dg

from pipelines.definitions import ASSETS, defs
from pipelines.partitions import EXPERIMENT_ROUNDS
from pipelines.rounds import ENGINE_POOL


def test_the_code_location_loads() -> None:
    dg.Definitions.validate_loadable(defs)
    assert defs.resolve_job_def("experiment").partitions_def == EXPERIMENT_ROUNDS


def test_the_assets_lead_from_worlds_to_evaluated_versions_with_one_partition_a_round() -> None:
    upstream = {asset.key.to_user_string(): {key.to_user_string() for key in asset.dependency_keys} for asset in ASSETS}
    assert upstream == {
        "worlds": set(), "world_checks": {"worlds"}, "task_bundles": {"worlds"}, "bundle_checks": {"world_checks", "task_bundles"},
        "admitted_bundles": {"bundle_checks"}, "supervised_traces": {"admitted_bundles"}, "sft_model": {"supervised_traces"},
        "rollouts": {"admitted_bundles", "sft_model"}, "verdicts": {"rollouts"}, "rewards": {"verdicts"}, "training_batch": {"rewards"},
        "model_version": {"training_batch", "sft_model"}, "evaluation": {"model_version", "sft_model"},
    }  # fmt: skip
    assert all(asset.partitions_def == EXPERIMENT_ROUNDS for asset in ASSETS)


def test_what_samples_waits_for_the_engine() -> None:
    pools = {asset.key.to_user_string(): asset.op.pool for asset in ASSETS}
    assert {name for name, pool in pools.items() if pool is not None} == {"rollouts", "evaluation"}
    assert pools["rollouts"] == pools["evaluation"] == ENGINE_POOL
