"""The sensor gives an experiment file its first partition once, and starts no run."""

from pathlib import Path

import dagster as dg

from pipelines.automation import experiment_files
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
