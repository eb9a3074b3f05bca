"""Jobs, the sensor that gives every experiment file its first partition, and the one that checks again what rests on new versions."""

import dagster as dg

from pipelines.partitions import EXPERIMENT_ROUNDS, first_rounds
from pipelines.resources import ExperimentFiles

experiment = dg.define_asset_job(
    "experiment",
    selection=dg.AssetSelection.groups("experiment"),
    description="One round of one experiment, from its tasks to its rewards.",
)


gates = dg.define_asset_job(
    "gates",
    selection=dg.AssetSelection.assets("world_checks", "task_bundles", "bundle_checks", "admitted_bundles"),
    description="The gates of one round of one experiment, without its rollouts.",
)


@dg.asset_sensor(asset_key=dg.AssetKey("worlds"), job=gates, minimum_interval_seconds=30, default_status=dg.DefaultSensorStatus.RUNNING)
def rechecks(context: dg.SensorEvaluationContext, asset_event: dg.EventLogEntry) -> dg.RunRequest | dg.SkipReason:
    """Runs the gates again when `worlds` was materialized with other world or verifier versions than the gates last looked at."""
    event = asset_event.asset_materialization
    if event is None or event.partition is None:
        return dg.SkipReason("the event is no materialization of a partition")
    versions = versions_of(event)
    last = context.instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=dg.AssetKey("bundle_checks"), asset_partitions=[event.partition]), limit=1
    )
    seen = versions_of(last.records[0].asset_materialization) if last.records and last.records[0].asset_materialization else None
    if seen == versions:
        return dg.SkipReason(f"{event.partition}: the gates have looked at these versions")
    return dg.RunRequest(run_key=f"{event.partition}:{versions}", partition_key=event.partition)


def versions_of(event: dg.AssetMaterialization) -> str:
    """The digest over world and verifier versions that a materialization names, empty when it names none."""
    value = event.metadata.get("versions digest")
    return "" if value is None else str(value.value)


@dg.sensor(minimum_interval_seconds=30, default_status=dg.DefaultSensorStatus.RUNNING)
def experiment_files(context: dg.SensorEvaluationContext, experiments: dg.ResourceParam[ExperimentFiles]) -> dg.SensorResult:
    """Adds the partition <name>.r0 for every experiment file that has none; it starts no run."""
    present = context.instance.get_dynamic_partitions(str(EXPERIMENT_ROUNDS.name))
    keys = first_rounds(experiments.paths(), present)
    if not keys:
        return dg.SensorResult(skip_reason=f"all {len(present)} partitions are there")
    return dg.SensorResult(dynamic_partitions_requests=[EXPERIMENT_ROUNDS.build_add_request(keys)], skip_reason=f"added {', '.join(keys)}")
