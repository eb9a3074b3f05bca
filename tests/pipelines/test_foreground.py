"""A service in the foreground ends with everything that it started, also where its starter ignored signals."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.errors import SettingsError
from pipelines.foreground import check_port, run_service

SERVICE = """
import http.server, pathlib, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"])
pathlib.Path("child").write_text(str(child.pid))
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.BaseHTTPRequestHandler).serve_forever()
"""
STARTER = """
import os, pathlib, sys
from pipelines.foreground import run_service
folder, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
command = [sys.executable, "service.py", str(port)]
raise SystemExit(run_service(command, env=os.environ, folder=folder, port=port, on_ready=lambda: (folder / "ready").touch(), patience_s=2))
"""


@pytest.fixture
def port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def until(condition: Callable[[], bool], limit_s: float = 20.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_service_and_its_children_though_the_starter_ignored_it(
    tmp_path: Path, port: int, number: signal.Signals
) -> None:
    (tmp_path / "service.py").write_text(SERVICE)
    command = [sys.executable, "-c", STARTER, str(tmp_path), str(port)]
    starter = subprocess.Popen(command, preexec_fn=ignore_interrupts, cwd=Path(__file__).parents[2])
    try:
        assert until((tmp_path / "ready").exists)
        child = int((tmp_path / "child").read_text())
        assert is_running(child)
        starter.send_signal(number)
        assert starter.wait(20) == 0
        assert until(lambda: not is_running(child), 2.0)
        check_port(port, "TALLY_X")
    finally:
        starter.kill()


def test_the_exit_code_of_a_service_that_ends_by_itself_is_passed_on(tmp_path: Path, port: int) -> None:
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    assert run_service(command, env=os.environ, folder=tmp_path, port=port) == 3


def test_a_taken_port_is_refused_with_the_setting_that_moves_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SettingsError, match=r"is taken .*; set TALLY_DAGSTER_PORT to a free one"):
            check_port(taken.getsockname()[1], "TALLY_DAGSTER_PORT")
