"""Jobs and the sensor that gives every experiment file its first partition."""

import dagster as dg

from pipelines.partitions import EXPERIMENT_ROUNDS, first_rounds
from pipelines.resources import ExperimentFiles

experiment = dg.define_asset_job(
    "experiment",
    selection=dg.AssetSelection.groups("experiment"),
    description="One round of one experiment, from its tasks to its rewards.",
)


@dg.sensor(minimum_interval_seconds=30, default_status=dg.DefaultSensorStatus.RUNNING)
def experiment_files(context: dg.SensorEvaluationContext, experiments: dg.ResourceParam[ExperimentFiles]) -> dg.SensorResult:
    """Adds the partition <name>.r0 for every experiment file that has none; it starts no run."""
    present = context.instance.get_dynamic_partitions(str(EXPERIMENT_ROUNDS.name))
    keys = first_rounds(experiments.paths(), present)
    if not keys:
        return dg.SensorResult(skip_reason=f"all {len(present)} partitions are there")
    return dg.SensorResult(dynamic_partitions_requests=[EXPERIMENT_ROUNDS.build_add_request(keys)], skip_reason=f"added {', '.join(keys)}")
