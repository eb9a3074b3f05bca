"""The commands `tally dagster` and `tally ui`: each a service on the loopback that runs until it is told to end."""

import os
import sys
from pathlib import Path

import typer

from ledger.connect import connect
from ledger.settings import Settings
from pipelines.foreground import LOOPBACK, check_port, run_service

_ROOT = Path(__file__).resolve().parent.parent


def dagster() -> None:
    """Serve the asset graph: materialize experiments, watch runs, read counts and checks."""
    from pipelines import dagster_home
    from pipelines.resources import ExperimentFiles

    settings = Settings()
    check_port(settings.dagster_port, "TALLY_DAGSTER_PORT")
    # A ledger that is unreachable or behind is told here, and not by every step later.
    connect(settings).close()
    url = dagster_home.storage_url(settings, say=typer.echo)
    with dagster_home.instance(settings, url) as instance:
        for key in dagster_home.add_first_rounds(instance, ExperimentFiles().paths()):
            typer.echo(f"partition {key} added")
    folder = dagster_home.home(settings)
    command = [
        sys.executable, "-m", "dagster", "dev", "--module-name", "pipelines.definitions", "--working-directory", str(folder),
        "--host", LOOPBACK, "--port", str(settings.dagster_port), "--log-level", "warning",
    ]  # fmt: skip
    _serve(command, dagster_home.environment(settings, url), folder, settings.dagster_port, "Dagster")


def ui() -> None:
    """Serve the review desk: rewards, traces, disagreements."""
    from pipelines.dagster_home import deployment_environment

    settings = Settings()
    check_port(settings.ui_port, "TALLY_UI_PORT")
    connect(settings).close()
    command = [
        sys.executable, "-m", "streamlit", "run", str(_ROOT / "ui" / "app.py"), "--server.address", LOOPBACK,
        "--server.port", str(settings.ui_port), "--browser.gatherUsageStats", "false", "--server.headless", "true",
    ]  # fmt: skip
    _serve(command, {**os.environ, **deployment_environment(settings)}, _ROOT, settings.ui_port, "The review desk")


def _serve(command: list[str], env: dict[str, str], folder: Path, port: int, name: str) -> None:
    url = f"http://{LOOPBACK}:{port}"
    typer.echo(f"{name} is starting on {url}")
    code = run_service(command, env=env, folder=folder, port=port, on_ready=lambda: typer.echo(f"{name} answers on {url}; Ctrl-C ends it"))
    if code:
        raise typer.Exit(code)
