"""Fixtures for the pipeline tests: deployments with an empty ledger, and runs of assets and checks in this process."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from pipelines.checks import CHECKS
from pipelines.definitions import ASSETS
from pipelines.partitions import EXPERIMENT_ROUNDS
from pipelines.resources import SHIPPED, Deployment, ExperimentFiles
from tests.conftest import Cluster

ONE_TASK = """\
name = "{name}"
seed = 7
[harness]
calls_per_turn = {calls_per_turn}
[[tasks]]
world = "ticket_desk"
count = 1
seed = 7
[[collect]]
policy = "oracle"
rollout_kind = "expert"
"""


@dataclass(frozen=True)
class Site:
    """A deployment with a ledger of its own, an instance of Dagster that is forgotten, and a folder of experiment files."""

    settings: Settings
    instance: dg.DagsterInstance
    folder: Path

    def connect(self) -> LedgerHandle:
        """The deployment's ledger."""
        return Deployment(self.settings).connect()

    def one_task(self, name: str, *, calls_per_turn: int = 12) -> str:
        """The partition of a new experiment in which the oracle tries one task."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"{name}.toml").write_text(ONE_TASK.format(name=name, calls_per_turn=calls_per_turn))
        return f"{name}.r0"

    def run(
        self, key: str, selection: Sequence[str] | dg.AssetSelection | None = None, *, instance: dg.DagsterInstance | None = None
    ) -> dg.ExecuteInProcessResult:
        """The result of one run of the selected assets and checks; of all when none are selected."""
        used = instance or self.instance
        used.add_dynamic_partitions(str(EXPERIMENT_ROUNDS.name), [key])
        resources = {"deployment": Deployment(self.settings), "experiments": ExperimentFiles((SHIPPED, self.folder))}
        return dg.materialize(
            [*ASSETS, *CHECKS], selection=selection, partition_key=key, instance=used, resources=resources, raise_on_error=False
        )  # fmt: skip


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A deployment whose ledger the tests of a module share."""
    url, folder = cluster.migrated_database(), tmp_path_factory.mktemp("site")
    settings = Settings(data_dir=folder / "data", database_url=url, project="test", actor="tester")
    with dg.DagsterInstance.ephemeral() as instance:
        yield Site(settings, instance, folder / "experiments")
    cluster.drop(url)
