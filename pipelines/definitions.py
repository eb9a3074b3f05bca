"""The Dagster code location: assets, checks, jobs, sensors and resources."""

import dagster as dg

from pipelines.assets.evaluation import rewards, verdicts
from pipelines.assets.rollouts import rollouts
from pipelines.assets.synthesis import admitted_bundles, bundle_checks, task_bundles, world_checks, worlds
from pipelines.automation import experiment, experiment_files, gates, rechecks
from pipelines.checks import CHECKS
from pipelines.resources import Deployment, ExperimentFiles

ASSETS = [worlds, world_checks, task_bundles, bundle_checks, admitted_bundles, rollouts, verdicts, rewards]

defs = dg.Definitions(
    assets=ASSETS,
    asset_checks=CHECKS,
    jobs=[experiment, gates],
    sensors=[experiment_files, rechecks],
    resources={"deployment": Deployment(), "experiments": ExperimentFiles()},
    executor=dg.in_process_executor,
)
