"""Dagster's own home and database in this deployment. Writes the data folder and starts the embedded PostgreSQL."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dagster import DagsterInstance
from dagster._core.instance.ref import InstanceRef

from ledger import embedded
from ledger.settings import Settings
from pipelines.partitions import EXPERIMENT_ROUNDS, first_rounds

PG_URL = "DAGSTER_PG_URL"
DATABASE = "dagster"
# What Dagster says of its own command and of its partitioned checks is no concern of a reader of the terminal.
_QUIET = "ignore:Function `dev_command` is superseded,ignore:Specifying a partitions_def on an AssetCheckSpec"
_CONFIG = f"""\
storage:
  postgres:
    postgres_url:
      env: {PG_URL}
telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  pools:
    default_limit: 1
    granularity: op
run_monitoring:
  enabled: true
  start_timeout_seconds: 180
"""


def home(settings: Settings) -> Path:
    """The folder of Dagster's configuration, logs and files, with its `dagster.yaml` written."""
    folder = settings.data_dir / "dagster"
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "dagster.yaml"
    if not config.exists() or config.read_text() != _CONFIG:
        config.with_suffix(".part").write_text(_CONFIG)
        config.with_suffix(".part").replace(config)
    return folder


def storage_url(settings: Settings, *, say: Callable[[str], None] = print) -> str:
    """The URL of Dagster's own database; on the embedded server, started if need be, where the settings name no other.

    Raises:
        EmbeddedPostgresError: the embedded server cannot be started.
    """
    url = settings.dagster_database_url
    if url is None:
        url = embedded.ensure_database(embedded.start(settings.data_dir / "postgres", say=say), DATABASE)
    # dagster-postgres speaks psycopg2, and SQLAlchemy takes a URL without a driver for psycopg 3.
    return url.replace("postgresql://", "postgresql+psycopg2://", 1)


def environment(settings: Settings, url: str) -> dict[str, str]:
    """The environment of Dagster's processes: this process's own, with the settings in full, since they run in another folder."""
    return {
        **os.environ,
        **deployment_environment(settings),
        "DAGSTER_HOME": str(home(settings)),
        PG_URL: url,
        # A file in the working folder that is named like a library must not shadow it.
        "PYTHONSAFEPATH": "1",
        "PYTHONWARNINGS": _QUIET,
    }


def deployment_environment(settings: Settings) -> Mapping[str, str]:
    """The settings as the environment variables that they are read from."""
    values = settings.model_dump(exclude_none=True)
    return {f"TALLY_{name.upper()}": str(value) for name, value in values.items()}


@contextmanager
def instance(settings: Settings, url: str) -> Iterator[DagsterInstance]:
    """Dagster's instance for work in this process, recorded where the pages of `tally dagster` read it.

    Args:
        settings: the deployment.
        url: from `storage_url`.
    """
    storage = {"storage": {"postgres": {"postgres_url": url}}}
    with DagsterInstance.from_ref(InstanceRef.from_dir(str(home(settings)), overrides=storage)) as opened:
        yield opened


def add_first_rounds(opened: DagsterInstance, experiments: Iterable[str]) -> list[str]:
    """The partition keys that were added so that every experiment has its first round."""
    name = str(EXPERIMENT_ROUNDS.name)
    keys = first_rounds(experiments, opened.get_dynamic_partitions(name))
    if keys:
        opened.add_dynamic_partitions(name, keys)
    return keys
