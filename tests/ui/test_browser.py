"""The pages in a real browser: from a row to its tokens, from a disagreement to a decision, a deep link to a fresh server."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ui.conftest import Site

ROOT = Path(__file__).parents[2]
PATIENCE_MS = 90_000


@pytest.fixture
def server(site: Site, tmp_path: Path) -> Iterator[str]:
    """Address of a server that has shown no page yet."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"TALLY_DATABASE_URL": site.url, "TALLY_DATA_DIR": str(site.data_dir), "TALLY_PROJECT": "test"}
    command = [
        sys.executable, "-m", "streamlit", "run", "ui/app.py", "--server.address", "127.0.0.1", "--server.port", str(port),
        "--browser.gatherUsageStats", "false", "--server.headless", "true",
    ]  # fmt: skip
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **settings}, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait(f"http://127.0.0.1:{port}/_stcore/health")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=30)


def _wait(url: str) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"{url} did not answer within 90 s")


@pytest.fixture
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    from playwright.sync_api import sync_playwright

    binary = shutil.which("chromium") or shutil.which("chromium-browser")
    if binary is None:
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=binary, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        yield chromium
        chromium.close()


def test_the_way_from_a_row_to_its_tokens_and_from_a_disagreement_to_a_decision(
    site: Site, server: str, browser: Any, tmp_path: Path
) -> None:
    tab = browser.new_page(viewport={"width": 1400, "height": 1000})
    tab.set_default_timeout(PATIENCE_MS)
    alerts: list[Any] = []
    foreign: list[str] = []
    tab.on("dialog", lambda dialog: alerts.append(dialog))
    tab.on("request", lambda sent: foreign.append(sent.url) if not sent.url.startswith((server, "data:", "blob:", "ws:")) else None)

    # A deep link is the first thing that this server is asked for.
    tab.goto(f"{server}/trace?rollout={site.rollouts['foreign'][:12]}")
    tab.get_by_role("tab", name="Conversation and verdicts").wait_for()
    tab.get_by_text("<script>alert('x')</script> **bold**").first.wait_for()
    tab.get_by_role("link", name="Disagreements").first.wait_for()

    tab.get_by_role("link", name="Rewards").first.click()
    grid = tab.get_by_test_id("stDataFrame").locator("canvas").first
    grid.wait_for()
    tab.wait_for_timeout(1000)
    tab.screenshot(path=tmp_path / "rewards.png")
    newest_first = ["foreign", "broken", "double", "disputed", "sibling", "solved"]
    tab.locator(".dvn-scroller").first.click(position={"x": 260, "y": 35 + 35 * newest_first.index("solved") + 17})
    tab.get_by_role("tab", name="Tokens").click()
    tab.locator(".tl-token").first.wait_for()
    assert "/trace?reward=" in tab.url
    assert tab.locator(".tl-token b", has_text="<|im_end|>").count() >= 1
    tab.screenshot(path=tmp_path / "trace.png")

    tab.goto(f"{server}/disagreements")
    table = tab.get_by_test_id("stDataFrame").locator("canvas").first
    table.wait_for()
    tab.wait_for_timeout(1000)
    tab.locator(".dvn-scroller").first.click(position={"x": 200, "y": 35 + 17})
    tab.get_by_text("failed: it was not").click()
    assert "rollout=" in tab.url
    decided = tab.url.partition("rollout=")[2]
    tab.get_by_text("desk_conditions (program): failed").click()
    tab.get_by_label("Reason").fill("seen in the browser: <i>C3</i>")
    tab.get_by_label("Your name").fill("Browser Reviewer")
    tab.get_by_role("button", name="Save the decision").dblclick()
    tab.get_by_text("The decision is recorded").wait_for()
    tab.screenshot(path=tmp_path / "disagreements.png")

    tab.goto(f"{server}/trace?rollout={decided}")
    tab.get_by_text("seen in the browser: <i>C3</i>").wait_for()
    assert tab.get_by_text("Browser Reviewer").count() == 1
    events = [event.body for event in site.ledger.read(kinds=["ReviewDecided"])]
    assert sum(getattr(body, "rollout_id", "") == decided and getattr(body, "decision", "") == "failed" for body in events) >= 1
    assert alerts == []
    assert foreign == []
