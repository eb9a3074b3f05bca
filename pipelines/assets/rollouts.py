"""The asset `rollouts`: every slot of a round filled with one counted attempt, each model call durable before it is answered."""

import dagster as dg

from pipelines.assets.imitation import nothing_to_do, sft_model
from pipelines.assets.synthesis import admitted_bundles
from pipelines.partitions import EXPERIMENT_ROUNDS, parse_key
from pipelines.resources import Deployment, ExperimentFiles, opened_lab
from pipelines.rounds import ENGINE_POOL, sampled_for
from pipelines.summary import LoggedProgress, attempt_metadata, merged, stage_metadata
from training import stages
from training.lab import SMOLLM2


@dg.asset(
    deps=[admitted_bundles, sft_model], partitions_def=EXPERIMENT_ROUNDS, group_name="experiment", kinds={"python", "postgres"},
    pool=ENGINE_POOL,
)  # fmt: skip
def rollouts(
    context: dg.AssetExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.MaterializeResult[None]:
    """Attempts of the experiment's policies at its bundles, with every model call and tool call.

    Round 0 has those of the experiment's collections, later rounds those of the policy that is trained, by the version before the round.
    """
    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        if (place := sampled_for(lab.config.train, part)) is not None:
            from training.optimise import trainer
            from training.optimise.samplers import open_sampler

            report = trainer.rollouts(lab, place.label, open_sampler, progress=LoggedProgress(context.log.info))
            return dg.MaterializeResult(metadata=merged(attempt_metadata(lab, part.round), stage_metadata(lab, part.round, report)))
        if lab.config.train is not None and part.round:
            return nothing_to_do(lab, part)
        try:
            report = stages.rollouts(lab, round=part.round, progress=LoggedProgress(context.log.info))
        finally:
            # Nobody would stop a model server that outlives its run.
            if any(collection.policy == SMOLLM2 for collection in lab.config.collect):
                lab.cool()
        return dg.MaterializeResult(metadata=merged(attempt_metadata(lab, part.round), stage_metadata(lab, part.round, report)))
