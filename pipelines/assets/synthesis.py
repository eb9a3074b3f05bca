"""The asset `task_bundles`: the experiment's tasks sealed as bundles, with worlds, verifiers and harness registered."""

import dagster as dg

from pipelines.partitions import EXPERIMENT_ROUNDS, parse_key
from pipelines.resources import Deployment, ExperimentFiles, opened_lab
from pipelines.summary import LoggedProgress, stage_metadata
from training import stages


@dg.asset(partitions_def=EXPERIMENT_ROUNDS, group_name="experiment", kinds={"python", "postgres"})
def task_bundles(
    context: dg.AssetExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.MaterializeResult[None]:
    """Content-addressed task bundles: request, environment version, initial state, verifier version, harness version."""
    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        report = stages.task_bundles(lab, progress=LoggedProgress(context.log.info))
        return dg.MaterializeResult(metadata=stage_metadata(lab, part.round, report))
