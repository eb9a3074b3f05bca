"""Worker processes that run foreign code, spoken to in JSON lines and lent to one request at a time. Starts processes."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ledger.errors import WorldFailed
from training.worlds import worker_loop

_LOOP = Path(str(worker_loop.__file__))
_ERRORS_SHOWN = 1500


@dataclass(frozen=True)
class WorkerProgram:
    """What a worker runs.

    Attributes:
        python: interpreter of the foreign package's environment.
        script: file with the class `Adapter` (see `worker_loop`).
        options: JSON handed to the adapter.
        start_s: seconds that the start with the adapter's imports may take.
        call_s: seconds that any other request may take.
        environment: further environment variables; nothing else of ours is passed on.
    """

    python: Path
    script: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    start_s: float = 120.0
    call_s: float = 30.0
    environment: Mapping[str, str] = field(default_factory=dict)


class WorkerProcess:
    """One worker, ready for requests, in a scratch folder of its own that goes with it.

    Raises:
        WorldFailed: it did not start.
    """

    def __init__(self, program: WorkerProgram) -> None:
        self._program = program
        self._scratch = Path(tempfile.mkdtemp(prefix="tally-worker-"))
        self._rest = b""
        self._stopping, self._stopped = threading.Lock(), False
        self._socket, theirs = socket.socketpair()
        # The options -s -P -B and an environment of our own isolate as -I does; -I itself would ignore the hash seed, and
        # with it the order in which sets reach an observation.
        try:
            with theirs, open(self._scratch / "stderr", "wb") as errors:
                self._process = subprocess.Popen(
                    [str(program.python), "-P", "-s", "-B", str(_LOOP), str(program.script)],
                    stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=errors, start_new_session=True, cwd=self._scratch,
                    env={"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8", "HOME": str(self._scratch), "TMPDIR": str(self._scratch),
                         "PATH": f"{program.python.parent}:/usr/bin:/bin", **program.environment},
                )  # fmt: skip
        except OSError as error:
            self._socket.close()
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise WorldFailed(f"no worker could be started with {program.python}: {error}") from error
        started = False
        try:
            self.ask("hello", limit_s=program.start_s, options=dict(program.options))
            started = True
        finally:
            if not started:
                self.stop()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def ask(self, op: str, *, limit_s: float | None = None, **arguments: Any) -> Any:
        """What the worker answers to one request.

        Args:
            op: name of a method of the adapter.
            limit_s: seconds it may take; default: the program's.
            arguments: JSON arguments of the method.
        Raises:
            WorldFailed: the method raised, or the worker ended, was late or answered what is not JSON; it must be stopped then.
        """
        limit_s = self._program.call_s if limit_s is None else limit_s
        try:
            line = self._exchange(json.dumps({"op": op, **arguments}).encode() + b"\n", time.monotonic() + limit_s)
            reply = json.loads(line)
        except TimeoutError as error:
            raise WorldFailed(f"the worker did not answer {op!r} within {limit_s:g} s") from error
        except (OSError, ValueError) as error:
            raise WorldFailed(f"the worker failed at {op!r}: {error}{self._last_errors()}") from error
        if "ok" not in reply:
            failed = reply.get("failed", {})
            raise WorldFailed(f"{op!r} failed in the worker with {failed.get('class')}: {failed.get('text')}")
        return reply["ok"]

    def stop(self) -> None:
        """Ends the process and its children, and removes its scratch folder; a second time does nothing."""
        with self._stopping:
            if self._stopped:
                return
            self._stopped = True
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        # A thread that waits for an answer has seen the end by now; it would not see a socket closed under it.
        self._socket.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _exchange(self, line: bytes, deadline: float) -> bytes:
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        self._socket.sendall(line)
        parts = [self._rest]
        while b"\n" not in parts[-1]:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            part = self._socket.recv(1 << 20)
            if not part:
                raise ConnectionError(f"it ended before it answered, exit status {self._status()}")
            parts.append(part)
        reply, _, self._rest = b"".join(parts).partition(b"\n")
        return reply

    def _status(self) -> int | None:
        try:
            return self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            return None

    def _last_errors(self) -> str:
        try:
            text = (self._scratch / "stderr").read_bytes()[-_ERRORS_SHOWN:].decode(errors="replace").strip()
        except OSError:
            return ""
        return f"; its last words: {text}" if text else ""


@dataclass
class Lease:
    """A worker lent for one request.

    Attributes:
        worker: nobody else speaks to it meanwhile.
        reached: how many of the keys asked for it has reached already.
        position: key of where the borrower leaves it; None when that is nowhere in particular.
    """

    worker: WorkerProcess
    reached: int
    position: str | None = None


class WorkerPool:
    """At most `count` workers, started when first needed, each remembered by where it was left. Safe to use from many threads.

    Args:
        program: what they run.
        count: how many requests run at once; others wait.
    """

    def __init__(self, program: WorkerProgram, *, count: int = 4) -> None:
        self._program, self._count = program, count
        self._idle: OrderedDict[WorkerProcess, str | None] = OrderedDict()
        self._lent: set[WorkerProcess] = set()
        self._starting = 0
        self._changed = threading.Condition()
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that run now."""
        with self._changed:
            return sorted(worker.pid for worker in (*self._idle, *self._lent) if worker.alive)

    @contextmanager
    def lent(self, keys: Sequence[str] = ()) -> Iterator[Lease]:
        """A worker: one that was left at the last of `keys`, else at one before it, else nowhere, else a new one, else the longest idle.

        A worker whose borrower raises is ended and replaced when next needed.

        Args:
            keys: keys of the positions on the way to the one wanted.
        Raises:
            WorldFailed: the pool was closed, or a worker does not start.
        """
        lease = self._take(keys)
        sound = False
        try:
            yield lease
            sound = True
        finally:
            with self._changed:
                self._lent.discard(lease.worker)
                sound = sound and not self._closed
                if sound:
                    self._idle[lease.worker] = lease.position
                self._changed.notify()
            if not sound:
                lease.worker.stop()

    def close(self) -> None:
        """Ends all workers; later requests fail."""
        with self._changed:
            self._closed = True
            running = [*self._idle, *self._lent]
            self._idle.clear()
            self._changed.notify_all()
        for worker in running:
            worker.stop()

    def _take(self, keys: Sequence[str]) -> Lease:
        with self._changed:
            while True:
                if self._closed:
                    raise WorldFailed("the workers were closed")
                for worker in [worker for worker in self._idle if not worker.alive]:
                    del self._idle[worker]
                    worker.stop()
                places = {position: worker for worker, position in self._idle.items() if position is not None}
                reached = next((n for n in range(len(keys), 0, -1) if keys[n - 1] in places), 0)
                if reached:
                    return self._lend(places[keys[reached - 1]], reached)
                nowhere = [worker for worker, position in self._idle.items() if position is None]
                if nowhere:
                    return self._lend(nowhere[0], 0)
                if len(self._idle) + len(self._lent) + self._starting < self._count:
                    self._starting += 1
                    break
                if self._idle:
                    return self._lend(next(iter(self._idle)), 0)
                self._changed.wait()
        return self._start()

    def _lend(self, worker: WorkerProcess, reached: int) -> Lease:
        del self._idle[worker]
        self._lent.add(worker)
        return Lease(worker, reached)

    def _start(self) -> Lease:
        worker: WorkerProcess | None = None
        try:
            worker = WorkerProcess(self._program)
        finally:
            with self._changed:
                self._starting -= 1
                closed = self._closed
                if worker is not None and not closed:
                    self._lent.add(worker)
                self._changed.notify()
        if closed:
            worker.stop()
            raise WorldFailed("the workers were closed")
        return Lease(worker, 0)
