"""Runs one program in a sandbox to its end and reports on it. Starts and kills processes."""

import json
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

from ledger.errors import SandboxUnavailable
from training.worlds.runtime_bootstrap import MEMORY_EXIT
from training.worlds.runtime_launch import SCRATCH, Confinement, Launched, Limits, Program, launch

Ended = Literal["exit", "signal", "cpu", "memory", "wall", "output", "scratch"]
TICK_S = 0.05
_READY = b"ready"


@dataclass(frozen=True)
class Report:
    """How a run went.

    Attributes:
        ended: `exit` by itself; `signal` by a signal that no limit sent; or the limit that ended it: `cpu`, `memory`, `wall`, `output`
            or `scratch` (its number of files). `memory` is the program's own word for it: its allocation was refused and it gave up.
        exit_code: its exit code, 128 + n after signal n; None when it was killed from outside.
        stdout, stderr: what it wrote, up to the limit.
        wall_s: seconds it took.
        held: protections in force.
        missing: protections that were not, with why.
    """

    ended: Ended
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    wall_s: float
    held: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True when it ended by itself with exit code 0."""
        return self.ended == "exit" and self.exit_code == 0


class Sandboxed:
    """A started sandbox that ends when told to; the process, its children and everything else inside."""

    def __init__(self, launched: Launched, limits: Limits) -> None:
        self.process = launched.process
        self._launched = launched
        self._limits = limits
        self._inside: str | None = None
        self._code: int | None = None
        self._lock = threading.Lock()
        self._open = True

    @property
    def returncode(self) -> int | None:
        """The exit code once it has ended, else None."""
        return self._code

    def wait(self, *, block: bool) -> int | None:
        """The exit code when it has ended, or None."""
        with self._lock:
            if self._code is None:
                pid, status = os.waitpid(self.process.pid, 0 if block else os.WNOHANG)
                if pid:
                    code = os.waitstatus_to_exitcode(status)
                    self._code = self.process.returncode = code if code >= 0 else 128 - code
            return self._code

    def kill(self) -> None:
        """Ends everything inside; harmless when it has ended."""
        if self.wait(block=False) is None:
            # bwrap's first process takes everything inside with it; without bwrap, the group is all that is known.
            os.killpg(self.process.pid, signal.SIGKILL)
            self.wait(block=True)

    def close(self) -> None:
        """Ends everything inside and lets go of its pipes."""
        self.kill()
        if self._open:
            self._open = False
            os.close(self._launched.status)
            os.close(self._launched.info)
            for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
                if pipe is not None:
                    pipe.close()
            if self._launched.folder:
                shutil.rmtree(self._launched.folder, ignore_errors=True)

    def was_ready(self) -> bool:
        """After its end: whether the program itself was ever reached."""
        os.set_blocking(self._launched.status, False)
        with suppress(BlockingIOError):
            return os.read(self._launched.status, len(_READY)) == _READY
        return False

    def too_many_files(self) -> bool:
        """Whether the scratch folder holds more files than allowed; False also when it cannot be looked at because it ends."""
        if not self._limits.scratch_bytes or self._launched.folder:
            return False
        with suppress(OSError, ValueError, KeyError):
            if self._inside is None:
                os.set_blocking(self._launched.info, False)
                self._inside = f"/proc/{json.loads(os.read(self._launched.info, 4096))['child-pid']}/root{SCRATCH}"
            space = os.statvfs(self._inside)
            return space.f_files - space.f_ffree > self._limits.scratch_files
        return False


@contextmanager
def sandboxed(confinement: Confinement, program: Program, limits: Limits, *, stdin: int, stdout: int, stderr: int) -> Iterator[Sandboxed]:
    """A started sandbox, ended on leaving."""
    box = Sandboxed(launch(confinement, program, limits, stdin=stdin, stdout=stdout, stderr=stderr), limits)
    try:
        yield box
    finally:
        box.close()


def run_once(confinement: Confinement, program: Program, limits: Limits, *, stdin: bytes = b"") -> Report:
    """The report on a program that ran to its end or to one of its limits.

    Raises:
        SandboxUnavailable: the sandbox could not be made, so nothing of the program ran.
    """
    started = time.monotonic()
    with sandboxed(confinement, program, limits, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as box:
        written, killed = _converse(box, stdin, limits, started + limits.wall_s)
        code = box.wait(block=True)
        assert code is not None
        wall_s = time.monotonic() - started
        if killed is None and not box.was_ready():
            raise SandboxUnavailable(
                f"no sandbox by {confinement.bwrap or confinement.mode}: {written['stderr'][-400:].decode(errors='replace').strip()}"
            )
        ended = killed or _end(code, wall_s, limits)
        return Report(ended, None if killed else code, written["stdout"], written["stderr"], wall_s)


def _end(code: int, wall_s: float, limits: Limits) -> Ended:
    if code == MEMORY_EXIT:
        return "memory"
    # A program that ignores SIGXCPU is killed one second of CPU time later.
    if code == 128 + signal.SIGXCPU or (code == 128 + signal.SIGKILL and wall_s > limits.cpu_s):
        return "cpu"
    return "signal" if code > 128 else "exit"


def _converse(box: Sandboxed, stdin: bytes, limits: Limits, deadline: float) -> tuple[dict[str, bytes], Ended | None]:
    """What the program wrote, and the limit that it was killed for."""
    process = box.process
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: PT018
    written = {"stdout": bytearray(), "stderr": bytearray()}
    killed: Ended | None = None
    to_write = memoryview(stdin)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, "stdout")
        selector.register(process.stderr, selectors.EVENT_READ, "stderr")
        os.set_blocking(process.stdin.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE, "stdin")
        while selector.get_map():
            now = time.monotonic()
            # Without a process namespace something may live on and hold the pipes open.
            if now > deadline + 1.0:
                break
            if killed is None:
                killed = _exceeded(box, written, limits, now >= deadline)
                if killed:
                    box.kill()
                    deadline = min(deadline, now)
            for key, _ in selector.select(min(TICK_S, max(0.001, deadline - now))):
                if key.data == "stdin":
                    to_write = _write(key.fd, to_write)
                    if not to_write:
                        selector.unregister(process.stdin)
                        process.stdin.close()
                    continue
                part = os.read(key.fd, 1 << 16)
                if not part:
                    selector.unregister(key.fileobj)
                elif killed is None:
                    written[key.data] += part
    while box.wait(block=False) is None:
        if time.monotonic() >= deadline:
            box.kill()
            killed = "wall"
        time.sleep(0.001)
    return {name: bytes(content[: limits.output_bytes]) for name, content in written.items()}, killed


def _exceeded(box: Sandboxed, written: dict[str, bytearray], limits: Limits, late: bool) -> Ended | None:
    if sum(map(len, written.values())) > limits.output_bytes:
        return "output"
    if late:
        return "wall"
    return "scratch" if box.too_many_files() else None


def _write(fd: int, content: memoryview) -> memoryview:
    """What is left to write; nothing when the reader is gone."""
    try:
        return content[os.write(fd, content) :] if content else content
    except BlockingIOError:
        return content
    except BrokenPipeError:
        return content[:0]
