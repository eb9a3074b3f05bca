"""The assets `verdicts` and `rewards`: what the verifiers say of each counted rollout, and the number derived from it or why none is."""

import dagster as dg

from pipelines.assets.rollouts import rollouts
from pipelines.partitions import EXPERIMENT_ROUNDS, parse_key
from pipelines.resources import Deployment, ExperimentFiles, opened_lab
from pipelines.summary import LoggedProgress, merged, outcome_metadata, stage_metadata
from training import stages


@dg.asset(deps=[rollouts], partitions_def=EXPERIMENT_ROUNDS, group_name="experiment", kinds={"python", "postgres"})
def verdicts(
    context: dg.AssetExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.MaterializeResult[None]:
    """Per condition passed, failed or error, by the bundle's verifier and by the second opinions of its world."""
    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        report = stages.verdicts(lab, round=part.round, progress=LoggedProgress(context.log.info))
        return dg.MaterializeResult(metadata=merged(outcome_metadata(lab, part.round), stage_metadata(lab, part.round, report)))


@dg.asset(deps=[verdicts], partitions_def=EXPERIMENT_ROUNDS, group_name="experiment", kinds={"python", "postgres"})
def rewards(
    context: dg.AssetExecutionContext, deployment: dg.ResourceParam[Deployment], experiments: dg.ResourceParam[ExperimentFiles]
) -> dg.MaterializeResult[None]:
    """One reward a counted rollout by the experiment's named rule; null with a reason where no verdict supports a number."""
    part = parse_key(context.partition_key)
    with opened_lab(deployment, experiments, part, say=context.log.info) as lab:
        report = stages.rewards(lab, round=part.round, progress=LoggedProgress(context.log.info))
        return dg.MaterializeResult(metadata=merged(outcome_metadata(lab, part.round), stage_metadata(lab, part.round, report)))
