"""A new experiment file gets its first partition and no run; new versions of worlds and verifiers are checked again, known ones are not."""

from pathlib import Path

import dagster as dg
from dagster._core.definitions.partitions.context import partition_loading_context

from pipelines.automation import experiment_files, rechecks
from pipelines.definitions import defs
from pipelines.partitions import EXPERIMENT_ROUNDS
from pipelines.resources import ExperimentFiles
from tests.pipelines.conftest import ONE_TASK


def test_a_new_file_gets_its_first_partition_and_no_run(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(ONE_TASK.format(name="mine", calls_per_turn=12))
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance=instance, resources={"experiments": ExperimentFiles((tmp_path,))})
        first = experiment_files(context)
        assert not first.run_requests
        assert [list(request.partition_keys) for request in first.dynamic_partitions_requests] == [["mine.r0"]]
        instance.add_dynamic_partitions(str(EXPERIMENT_ROUNDS.name), ["mine.r0"])
        assert not experiment_files(context).dynamic_partitions_requests


def reported(instance: dg.DagsterInstance, asset: str, versions: str) -> dg.EventLogEntry:
    """The entry of a materialization of an asset for one partition, with the digest of the versions that it saw."""
    event = dg.AssetMaterialization(asset, partition="mine.r0", metadata={"versions digest": versions})
    instance.report_runless_asset_event(event)
    records = instance.fetch_materializations(dg.AssetKey(asset), limit=1).records
    return records[0].event_log_entry


def test_gates_run_again_for_new_versions_only() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(str(EXPERIMENT_ROUNDS.name), ["mine.r0"])

        def asked() -> list[str]:
            # A sensor looks at what came after its cursor; each of these looks at everything.
            context = dg.build_sensor_context(instance=instance, repository_def=defs.get_repository_def())
            with partition_loading_context(dynamic_partitions_store=instance):
                return [str(request.run_key) for request in rechecks.evaluate_tick(context).run_requests or []]

        reported(instance, "worlds", "aa")
        assert asked() == ["mine.r0:aa"]
        reported(instance, "bundle_checks", "aa")
        assert asked() == []
        reported(instance, "worlds", "bb")
        assert asked() == ["mine.r0:bb"]
