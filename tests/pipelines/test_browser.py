"""A person at the real pages: the graph is opened, a partition is materialized by click, and its counts are read."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cluster

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
GROUP = "/locations/pipelines.definitions/asset-groups/experiment/lineage"
START_S = 300.0

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium)")]


def interrupts_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def processes_naming(text: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.fixture
def served(cluster: Cluster, tmp_path: Path) -> Iterator[str]:
    """The address of `tally dagster`, started as a script's job in an empty folder; afterwards it and all its processes are gone."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {
        **os.environ,
        "TALLY_DATA_DIR": str(tmp_path / "data"),
        "TALLY_DATABASE_URL": cluster.migrated_database(),
        "TALLY_DAGSTER_DATABASE_URL": cluster.empty_database(),
        "TALLY_DAGSTER_PORT": str(port),
    }
    folder = tmp_path / "empty"
    folder.mkdir()
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-c", "from pipelines.cli import dagster; dagster()"]
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, preexec_fn=interrupts_ignored)
    try:
        deadline = time.monotonic() + START_S
        while "answers on" not in (tmp_path / "log").read_text():
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert list(folder.iterdir()) == []
        assert processes_naming(str(tmp_path / "data")) == []
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(60)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Any]:
    """A page of a headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        opened = browser.new_page(viewport={"width": 2200, "height": 1300})
        opened.set_default_timeout(120_000)
        yield opened
        browser.close()


def test_a_partition_is_materialized_by_click_and_its_counts_are_shown(served: str, page: Any, tmp_path: Path) -> None:
    elsewhere: list[str] = []
    page.on("request", lambda request: None if request.url.startswith((served, "data:", "blob:", "ws:")) else elsewhere.append(request.url))
    page.goto(served + GROUP)
    for name in ("worlds", "world_checks", "task_bundles", "bundle_checks", "admitted_bundles", "rollouts", "verdicts", "rewards"):
        page.get_by_text(name, exact=True).first.wait_for()
    page.get_by_role("button", name="Materialize all").click()
    page.get_by_text("Select a partition or create one").click()
    page.keyboard.type("smoke.r0")
    page.locator("label, a").filter(has_text="smoke.r0").first.click()
    page.get_by_role("button", name="Launch 1 run").click()
    page.get_by_text("View", exact=True).click()
    page.get_by_text("Success", exact=True).first.wait_for()
    page.goto(served + GROUP)
    page.get_by_text("1 / 1 Passed").nth(2).wait_for()
    page.get_by_text("2 / 2 Passed").nth(1).wait_for()
    page.screenshot(path=tmp_path / "graph.png")
    page.goto(f"{served}/assets/rewards?view=partitions&partition=smoke.r0")
    page.get_by_text("4 / 4", exact=True).wait_for()
    page.screenshot(path=tmp_path / "rewards.png")
    page.get_by_text("chart", exact=True).locator("xpath=ancestor::tr").get_by_text("Show Markdown").click()
    page.get_by_role("img", name="outcomes").wait_for()
    page.screenshot(path=tmp_path / "chart.png")
    assert elsewhere == []
