"""Servers under measurement, each a process of its own that says on its first line that it is ready. Runs processes."""

import json
import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.peers.environments import PeerUnavailable


@dataclass(frozen=True)
class Serving:
    """A server that is ready: what it said of itself, its folder, and `pid` of the process that serves."""

    ready: dict[str, Any]
    folder: Path
    pid: int

    def cpu_s(self) -> float:
        """Processor time that the server and the processes that it started have used, in seconds."""
        return sum(_ticks(pid) for pid in _tree(self.pid)) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        """Resident memory of the server and of the processes that it started, in MB."""
        return sum(_resident_kb(pid) for pid in _tree(self.pid)) / 1000


@contextmanager
def serving(command: Sequence[str], folder: Path, *, timeout_s: float = 180.0) -> Iterator[Serving]:
    """A server that prints one line of JSON with its `pid` when it is ready; it is ended on the way out.

    Raises:
        PeerUnavailable: it ended or said nothing in time; with the end of its errors.
    """
    folder.mkdir(parents=True, exist_ok=True)
    errors = folder / "stderr.txt"
    with errors.open("ab") as stderr:
        # A group of its own, so that what the driver starts ends with it.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, cwd=folder, start_new_session=True)
    try:
        line = _first_line(process, timeout_s)
        if not line:
            raise PeerUnavailable(
                f"{shlex.join(command)}: nothing within {timeout_s:g} s, status {process.poll()}: {errors.read_text()[-1500:]}"
            )
        ready = json.loads(line)
        yield Serving(ready, folder, ready["pid"])
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
                process.wait(timeout=15)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        process.wait()


def _first_line(process: "subprocess.Popen[bytes]", timeout_s: float) -> bytes:
    assert process.stdout is not None
    deadline, line = time.monotonic() + timeout_s, b""
    while not line.endswith(b"\n") and select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(process.stdout.fileno(), 65536)
        if not part:
            return b""
        line += part
    return line


def _tree(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    found = [int(child) for child in children.read_text().split()] if children.exists() else []
    return [pid, *(deeper for child in found for deeper in _tree(child))]


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _resident_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0
