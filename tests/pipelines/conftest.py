"""Fixtures for the pipeline tests: the deployment of a fresh ledger, and runs of the smoke experiment in this process."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import dagster as dg
import pytest

from ledger.connect import connect
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from pipelines.checks import CHECKS
from pipelines.definitions import ASSETS
from pipelines.partitions import EXPERIMENT_ROUNDS
from pipelines.resources import SHIPPED, Deployment, ExperimentFiles

Materialize = Callable[..., dg.ExecuteInProcessResult]


@pytest.fixture
def settings(ledger_url: str, tmp_path: Path) -> Settings:
    """Settings of a deployment whose ledger is empty."""
    return Settings(data_dir=tmp_path / "data", database_url=ledger_url, project="test", actor="tester")


@pytest.fixture
def opened(settings: Settings) -> Iterator[LedgerHandle]:
    """The deployment's ledger."""
    with connect(settings) as handle:
        yield handle


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance of Dagster that is forgotten after the test."""
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


def materialized(
    instance: dg.DagsterInstance, settings: Settings, key: str, *, folder: Path = SHIPPED, selection: Sequence[object] | None = None
) -> dg.ExecuteInProcessResult:
    """The result of one run of assets and checks in this process; of all unless a selection is given."""
    instance.add_dynamic_partitions(str(EXPERIMENT_ROUNDS.name), [key])
    resources: Mapping[str, object] = {"deployment": Deployment(settings), "experiments": ExperimentFiles((folder,))}
    return dg.materialize(
        [*ASSETS, *CHECKS], selection=selection, partition_key=key, instance=instance, resources=resources, raise_on_error=False
    )  # fmt: skip


@pytest.fixture
def materialize(instance: dg.DagsterInstance, settings: Settings) -> Materialize:
    """Run assets and checks for a partition in the fresh deployment."""

    def run(key: str, **more: object) -> dg.ExecuteInProcessResult:
        return materialized(instance, settings, key, **more)  # type: ignore[arg-type]

    return run
