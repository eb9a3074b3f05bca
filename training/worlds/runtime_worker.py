"""A long-lived sandboxed program that answers lines with lines. Starts and kills processes."""

import os
import socket
import threading
import time
from contextlib import ExitStack

from ledger.errors import WorldFailed
from training.worlds.runtime_launch import Confinement, Limits, Program, launch
from training.worlds.runtime_run import TICK_S, Sandboxed

_TAIL = 2000


class Worker:
    """A program that reads one line and writes one line for it, over and over; one question at a time, from any thread.

    What it writes to standard error is kept, up to the file limit, and quoted when it fails. It is gone after its first failure.

    Args:
        confinement: how the sandbox is made.
        program: what runs; its standard input and output carry the lines.
        limits: `wall_s` and `output_bytes` hold for each answer, `cpu_s` for its whole life.
    """

    def __init__(self, confinement: Confinement, program: Program, limits: Limits) -> None:
        self._limits = limits
        ours, theirs = socket.socketpair()
        with ExitStack() as undo, theirs:
            undo.callback(ours.close)
            self._errors = os.memfd_create("sandbox-stderr")
            undo.callback(os.close, self._errors)
            launched = launch(confinement, program, limits, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=self._errors)
            undo.pop_all()
        self._box = Sandboxed(launched, limits)
        self._socket = ours
        self._rest = b""
        self._lock = threading.Lock()
        self._closed = False

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self._closed and self._box.wait(block=False) is None

    @property
    def pid(self) -> int:
        """Process id of the sandbox; killing it kills everything inside."""
        return self._box.process.pid

    def ask(self, line: bytes, *, wall_s: float | None = None) -> bytes:
        """The line that it answers, without its end.

        Args:
            line: one line, with or without its end.
            wall_s: seconds for this answer; None for the limit.

        Raises:
            WorldFailed: it ended, was too slow or wrote too much, or was closed; it is gone then.
        """
        with self._lock:
            if self._closed:
                raise WorldFailed("the sandboxed worker is closed")
            seconds = self._limits.wall_s if wall_s is None else wall_s
            try:
                return self._exchange(line.rstrip(b"\n") + b"\n", time.monotonic() + seconds)
            except TimeoutError as error:
                raise self._failure(f"gave no answer within {seconds:g} s") from error
            except OSError as error:
                raise self._failure(f"could not be reached ({error})") from error

    def close(self) -> None:
        """Ends it and everything that it started; harmless when done twice."""
        if not self._closed:
            self._closed = True
            self._box.close()
            self._socket.close()
            os.close(self._errors)

    def _exchange(self, line: bytes, deadline: float) -> bytes:
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        self._socket.sendall(line)
        parts = [self._rest]
        size = len(self._rest)
        while b"\n" not in parts[-1]:
            if size > self._limits.output_bytes:
                raise self._failure(f"answered more than {self._limits.output_bytes} bytes")
            part = self._receive(deadline)
            if not part:
                raise self._failure("ended before it answered")
            parts.append(part)
            size += len(part)
        answer, _, self._rest = b"".join(parts).partition(b"\n")
        return answer

    def _receive(self, deadline: float) -> bytes:
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            # Without a scratch folder there is nothing to look after in between.
            self._socket.settimeout(min(left, TICK_S) if self._limits.scratch_bytes else left)
            try:
                return self._socket.recv(1 << 18)
            except TimeoutError:
                if self._box.too_many_files():
                    raise self._failure(f"made more than {self._limits.scratch_files} files") from None

    def _failure(self, what: str) -> WorldFailed:
        self._box.kill()
        size = os.fstat(self._errors).st_size
        said = os.pread(self._errors, _TAIL, max(0, size - _TAIL)).decode(errors="replace").strip()
        code = self._box.returncode
        self.close()
        return WorldFailed(f"the sandboxed worker {what} (exit code {code})" + (f"; it said: {said}" if said else ""))
