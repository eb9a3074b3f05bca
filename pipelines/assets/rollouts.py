"""The asset `rollouts`: every slot of the experiment's collections filled with one counted attempt, captured by the gateway."""

import dagster as dg

from pipelines.assets.synthesis import admitted_bundles
from pipelines.partitions import EXPERIMENT_ROUNDS, parse_key
from pipelines.resources import Deployment, ExperimentFiles, opened_lab
from pipelines.summary import LoggedProgress, attempt_metadata, merged, stage_metadata
from training import stages
from training.lab import SMOLLM2

ENGINE_POOL = "engine"
"""One model server at a time: the runs of all experiments queue here."""


@dg.asset(
    deps=[admitted_bundles], partitions_def=EXPERIMENT_ROUNDS, group_name="experiment", kinds={"python", "postgres"}, pool=ENGINE_POOL
)  # fmt: skip
def rollouts(
    context: dg.AssetExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.MaterializeResult[None]:
    """Attempts of the experiment's policies at its bundles, with every model call and tool call."""
    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        try:
            report = stages.rollouts(lab, round=part.round, progress=LoggedProgress(context.log.info))
        finally:
            # Nobody would stop a model server that outlives its run.
            if any(collection.policy == SMOLLM2 for collection in lab.config.collect):
                lab.cool()
        return dg.MaterializeResult(metadata=merged(attempt_metadata(lab, part.round), stage_metadata(lab, part.round, report)))
