"""New experiment files get a partition, new versions of worlds and verifiers are checked again, and training goes on round by round."""

from pathlib import Path

import dagster as dg
from dagster._core.definitions.partitions.context import partition_loading_context

from pipelines.automation import experiment_files, rechecks, rounds_go_on
from pipelines.definitions import defs
from pipelines.partitions import EXPERIMENT_ROUNDS
from pipelines.resources import Deployment, ExperimentFiles
from tests.pipelines.conftest import ONE_TASK
from tests.pipelines.training_site import TRAINS


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


class Training:
    """Experiments whose rounds are reported as evaluated, and what the sensor asks for at each look."""

    def __init__(self, instance: dg.DagsterInstance, folder: Path) -> None:
        self.instance, self.folder, self.cursor = instance, folder, None

    def file(self, name: str) -> None:
        (self.folder / f"{name}.toml").write_text(TRAINS.format(name=name))

    def evaluated(self, *keys: str) -> None:
        for key in keys:
            self.instance.report_runless_asset_event(dg.AssetMaterialization("evaluation", partition=key))

    def look(self) -> dg.SensorResult:
        files = ExperimentFiles((self.folder,))
        with dg.build_sensor_context(instance=self.instance, cursor=self.cursor, resources={"experiments": files}) as context:
            found = rounds_go_on(context)
        assert isinstance(found, dg.SensorResult)
        self.cursor = found.cursor
        return found

    def asked(self) -> list[tuple[str | None, str | None]]:
        found = self.look()
        added = [key for request in found.dynamic_partitions_requests or [] for key in request.partition_keys]
        requests = found.run_requests or []
        assert added == [request.partition_key for request in requests]
        return [(request.run_key, request.partition_key) for request in requests]


def test_an_evaluated_round_starts_the_next_until_the_last(tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        training = Training(instance, tmp_path)
        training.file("learns")
        assert training.asked() == []
        training.evaluated("learns.r0")
        # Copying and imitation are updates 1 and 2 of the run, which round 0 makes.
        assert training.asked() == [("training:learns.r3", "learns.r3")]
        assert training.asked() == []
        training.evaluated("learns.r3")
        assert training.asked() == [("training:learns.r4", "learns.r4")]
        training.evaluated("learns.r4")
        assert training.asked() == []


def test_every_experiment_that_was_evaluated_between_two_looks_goes_on(tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        training = Training(instance, tmp_path)
        for name in ("one", "two"):
            training.file(name)
        training.evaluated("one.r0", "two.r3", "one.r0")
        assert training.asked() == [("training:one.r3", "one.r3"), ("training:two.r4", "two.r4")]


def test_a_file_that_is_gone_and_one_that_trains_nothing_hold_nobody_up(tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        training = Training(instance, tmp_path)
        (tmp_path / "still.toml").write_text(ONE_TASK.format(name="still", calls_per_turn=12))
        training.evaluated("gone.r0", "still.r0")
        skipped = str(training.look().skip_reason)
        assert "gone.r0: no experiment 'gone'" in skipped and "still.r0: nothing follows" in skipped
        training.file("learns")
        training.evaluated("learns.r0")
        assert training.asked() == [("training:learns.r3", "learns.r3")]


def test_a_tick_of_the_sensor_asks_for_a_run_of_the_job_of_a_round(tmp_path: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        training = Training(instance, tmp_path)
        training.file("learns")
        training.evaluated("learns.r0")
        loaded = dg.Definitions(
            assets=defs.assets, jobs=defs.jobs, sensors=[rounds_go_on],
            resources={"deployment": Deployment(), "experiments": ExperimentFiles((tmp_path,))},
        )  # fmt: skip
        # Dagster's daemon adds the partitions that a tick asks for before their runs; here they are there already.
        instance.add_dynamic_partitions(str(EXPERIMENT_ROUNDS.name), ["learns.r3"])
        files = {"experiments": ExperimentFiles((tmp_path,))}
        with (
            dg.build_sensor_context(instance=instance, repository_def=loaded.get_repository_def(), resources=files) as context,
            partition_loading_context(dynamic_partitions_store=instance),
        ):
            tick = rounds_go_on.evaluate_tick(context)
        assert [request.partition_key for request in tick.run_requests or []] == ["learns.r3"]
        assert rounds_go_on.job_name == "training_round"
