"""Runs a service in the foreground: one process group that ends with this process, whatever signals were ignored when it began."""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from ledger.errors import SettingsError

LOOPBACK = "127.0.0.1"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL_S = 0.2


def check_port(port: int, setting: str) -> None:
    """Return when nothing listens on the loopback port.

    Raises:
        SettingsError: something does; the message names the setting that moves it.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise SettingsError(f"port {port} of {LOOPBACK} is taken ({error.strerror}); set {setting} to a free one") from error


def run_service(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    folder: Path,
    port: int,
    on_ready: Callable[[], None] = lambda: None,
    patience_s: float = 20.0,
) -> int:
    """The exit code of the command, which runs until it ends or this process is told to: 0 after SIGINT, SIGTERM or SIGHUP.

    Args:
        command: program and arguments.
        env: its whole environment.
        folder: its working folder.
        port: loopback port that it will listen on.
        on_ready: called once, when the port answers.
        patience_s: seconds that its processes have to end after SIGTERM before they are killed.
    """
    told = threading.Event()
    with _handled(told):
        process = subprocess.Popen(command, env=dict(env), cwd=folder, start_new_session=True, preexec_fn=_default_signals)
        try:
            ready = False
            while process.poll() is None and not told.wait(_POLL_S):
                if not ready and _answers(port):
                    ready = True
                    on_ready()
            return 0 if told.is_set() else int(process.wait())
        finally:
            _end(process, patience_s)


@contextmanager
def _handled(told: threading.Event) -> Iterator[None]:
    """The signals that ask for an end set the event; also where they were ignored, as in a job that a script started with &."""

    def tell(number: int, frame: FrameType | None) -> None:
        told.set()

    before = {number: signal.signal(number, tell) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _default_signals() -> None:
    for number in (*_SIGNALS, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(_POLL_S)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _end(process: "subprocess.Popen[bytes]", patience_s: float) -> None:
    """Ask the leader to end, then what is left of its group, and kill what does not."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(patience_s * 3 / 4)
    except subprocess.TimeoutExpired:
        pass
    deadline = time.monotonic() + patience_s / 4
    left = _signal_group(process.pid, signal.SIGTERM)
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        process.poll()
        left = _signal_group(process.pid, 0)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(group: int, number: int) -> bool:
    """Whether the process group still had members to signal."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True
