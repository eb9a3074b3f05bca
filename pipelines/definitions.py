"""The Dagster code location: assets, checks, jobs, sensors and resources."""

import dagster as dg

from pipelines.assets.evaluation import rewards, verdicts
from pipelines.assets.imitation import sft_model, supervised_traces
from pipelines.assets.rollouts import rollouts
from pipelines.assets.synthesis import admitted_bundles, bundle_checks, task_bundles, world_checks, worlds
from pipelines.assets.training import evaluation, model_version, training_batch
from pipelines.automation import experiment, experiment_files, gates, rechecks, rounds_go_on, training_round, training_start
from pipelines.checks import CHECKS
from pipelines.resources import Deployment, ExperimentFiles

ASSETS = [
    worlds, world_checks, task_bundles, bundle_checks, admitted_bundles, supervised_traces, sft_model, rollouts, verdicts, rewards,
    training_batch, model_version, evaluation,
]  # fmt: skip

defs = dg.Definitions(
    assets=ASSETS,
    asset_checks=CHECKS,
    jobs=[experiment, gates, training_start, training_round],
    sensors=[experiment_files, rechecks, rounds_go_on],
    resources={"deployment": Deployment(), "experiments": ExperimentFiles()},
    executor=dg.in_process_executor,
)
