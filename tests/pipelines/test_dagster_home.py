"""Dagster keeps its records in a database of its own, and its processes get the deployment's settings in full."""

from pathlib import Path

import dagster as dg
import pytest

from ledger.settings import Settings
from pipelines import dagster_home
from tests.conftest import Cluster
from tests.pipelines.conftest import Site


@pytest.fixture
def own_settings(cluster: Cluster, tmp_path: Path) -> Settings:
    """Settings that name an empty database for Dagster."""
    return Settings(data_dir=tmp_path / "data", dagster_database_url=cluster.empty_database())


def test_the_url_names_the_driver_that_dagster_speaks(own_settings: Settings) -> None:
    assert own_settings.dagster_database_url is not None
    assert dagster_home.storage_url(own_settings) == own_settings.dagster_database_url.replace("postgresql:", "postgresql+psycopg2:")


def test_the_configuration_holds_no_secret_and_switches_telemetry_off(own_settings: Settings) -> None:
    url = dagster_home.storage_url(own_settings)
    written = (dagster_home.home(own_settings) / "dagster.yaml").read_text()
    assert url not in written
    assert "telemetry:\n  enabled: false" in written
    with dagster_home.instance(own_settings, url) as instance:
        assert not instance.telemetry_enabled
        assert not instance.nux_enabled
        assert instance.global_op_concurrency_default_limit == 1


def test_a_changed_configuration_is_written_again(own_settings: Settings) -> None:
    config = dagster_home.home(own_settings) / "dagster.yaml"
    written = config.read_text()
    config.write_text("telemetry: {enabled: true}")
    assert (dagster_home.home(own_settings) / "dagster.yaml").read_text() == written


def test_settings_reach_processes_that_run_in_another_folder(own_settings: Settings) -> None:
    given = dagster_home.environment(own_settings, "postgresql+psycopg2://h/d")
    assert Path(given["TALLY_DATA_DIR"]).is_absolute()
    assert given["TALLY_DAGSTER_DATABASE_URL"] == own_settings.dagster_database_url
    assert given["DAGSTER_HOME"] == str(own_settings.data_dir / "dagster")
    assert "TALLY_DATABASE_URL" not in dagster_home.deployment_environment(own_settings)


def test_first_rounds_are_added_once(own_settings: Settings) -> None:
    with dagster_home.instance(own_settings, dagster_home.storage_url(own_settings)) as instance:
        assert dagster_home.add_first_rounds(instance, ["demo", "smoke"]) == ["demo.r0", "smoke.r0"]
        assert dagster_home.add_first_rounds(instance, ["demo", "smoke"]) == []


def test_a_run_in_this_process_is_recorded_in_postgresql(own_settings: Settings, site: Site) -> None:
    url = dagster_home.storage_url(own_settings)
    key = site.one_task("recorded")
    with dagster_home.instance(own_settings, url) as instance:
        assert site.run(key, ["task_bundles"], instance=instance).success
    with dagster_home.instance(own_settings, url) as reopened:
        (run,) = reopened.get_runs()
        assert (run.status, run.tags["dagster/partition"]) == (dg.DagsterRunStatus.SUCCESS, key)
        latest = reopened.get_latest_materialization_event(dg.AssetKey("task_bundles"))
        assert latest is not None
        assert latest.asset_materialization is not None
        assert latest.asset_materialization.metadata["bundles"].value == 1
