"""Jobs, and the sensors: first partitions for experiment files, gates again for new versions, the next round of training."""

import dagster as dg

from ledger.errors import SettingsError
from pipelines.partitions import EXPERIMENT_ROUNDS, first_rounds, parse_key
from pipelines.resources import ExperimentFiles
from pipelines.rounds import next_round

_EVENTS = 100

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


training_start = dg.define_asset_job(
    "training_start",
    selection=dg.AssetSelection.assets(
        "worlds", "world_checks", "task_bundles", "bundle_checks", "admitted_bundles", "supervised_traces", "sft_model", "evaluation"
    ),
    description="Round 0 of an experiment that trains: tasks, gates, traces, the imitated policy and its evaluation.",
)


training_round = dg.define_asset_job(
    "training_round",
    selection=dg.AssetSelection.assets("rollouts", "verdicts", "rewards", "training_batch", "model_version", "evaluation"),
    description="One round of training: rollouts of the newest version, the update that they give, and its evaluation.",
)


@dg.sensor(job=training_round, minimum_interval_seconds=5, default_status=dg.DefaultSensorStatus.RUNNING)
def rounds_go_on(context: dg.SensorEvaluationContext, experiments: dg.ResourceParam[ExperimentFiles]) -> dg.SensorResult:
    """Starts the next round of training of every experiment that had a round evaluated, until its last one."""
    # An asset sensor sees the newest event alone, and would forget an experiment when two are evaluated between two of its looks.
    since = int(context.cursor) if context.cursor else None
    records = context.instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=dg.AssetKey("evaluation"), after_storage_id=since), limit=_EVENTS, ascending=True
    ).records
    coming: dict[str, None] = {}
    said: list[str] = []
    for record in records:
        key = record.partition_key or ""
        try:
            part = parse_key(key)
            following = next_round(experiments.read(part.experiment).train, part)
        except SettingsError as error:
            # A file that was removed or broken since then must not hold the other experiments up.
            context.log.warning(f"{key}: {error}")
            said.append(f"{key}: {error}")
            continue
        if following is None:
            said.append(f"{key}: nothing follows")
        else:
            coming[following.key] = None
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_key=f"training:{key}", partition_key=key) for key in coming],
        dynamic_partitions_requests=[EXPERIMENT_ROUNDS.build_add_request(list(coming))] if coming else [],
        skip_reason=None if coming else "; ".join(said) or "no round was evaluated since the last look",
        cursor=str(records[-1].storage_id) if records else context.cursor,
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
