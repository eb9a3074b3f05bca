"""The Dagster code location: assets, checks, job, sensor and resources."""

import dagster as dg

from pipelines.assets.evaluation import rewards, verdicts
from pipelines.assets.rollouts import rollouts
from pipelines.assets.synthesis import task_bundles
from pipelines.automation import experiment, experiment_files
from pipelines.checks import CHECKS
from pipelines.resources import Deployment, ExperimentFiles

ASSETS = [task_bundles, rollouts, verdicts, rewards]

defs = dg.Definitions(
    assets=ASSETS,
    asset_checks=CHECKS,
    jobs=[experiment],
    sensors=[experiment_files],
    resources={"deployment": Deployment(), "experiments": ExperimentFiles()},
    executor=dg.in_process_executor,
)
