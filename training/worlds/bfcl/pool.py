"""Worker processes that run the wheel's code, lent to one request at a time and replaced when they fail."""

import atexit
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ledger.errors import WorldFailed
from training.worlds.bfcl import worker as worker_program

GRACE_S = 5.0
START_S = 60.0
_PROGRAM = Path(str(worker_program.__file__))


class _Worker:
    """One worker process and the socket to it."""

    def __init__(self, unpacked: Path) -> None:
        ours, theirs = socket.socketpair()
        # The options -s -P -B and an environment of our own isolate as -I does; -I itself would ignore the hash seed, and
        # with it the order in which sets reach an observation.
        self._process = subprocess.Popen(
            [sys.executable, "-s", "-P", "-B", str(_PROGRAM), str(unpacked)],
            stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.DEVNULL, start_new_session=True, cwd="/",
            env={"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        theirs.close()
        self._socket = ours
        self._fresh = True
        self._rest = b""

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def ask(self, line: bytes, limit_s: float) -> bytes:
        """The reply line.

        Raises:
            WorldFailed: the process ended or did not answer in time.
        """
        deadline = time.monotonic() + limit_s + GRACE_S + (START_S if self._fresh else 0.0)
        try:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            self._socket.sendall(line)
            parts = [self._rest]
            while b"\n" not in parts[-1]:
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                part = self._socket.recv(1 << 20)
                if not part:
                    raise WorldFailed(f"the worker ended before it answered (exit status {self._process.wait(GRACE_S)})")
                parts.append(part)
        except TimeoutError as error:
            raise WorldFailed(f"the worker did not answer within {limit_s + GRACE_S:g} s") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise WorldFailed(f"the worker could not be reached: {error}") from error
        self._fresh = False
        reply, _, self._rest = b"".join(parts).partition(b"\n")
        return reply

    def stop(self) -> None:
        """Ends the process and its children."""
        self._socket.close()
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()


class Workers:
    """At most `count` workers, started when first needed; safe to use from many threads.

    Args:
        unpacked: folder of the unpacked wheel.
        count: how many requests run at once; others wait.
        limit_s: seconds one request may take.
    """

    def __init__(self, unpacked: Path, *, count: int = 2, limit_s: float = 20.0) -> None:
        self._unpacked = unpacked.resolve()
        self._limit_s = limit_s
        self._slots: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(count):
            self._slots.put(None)
        self._running: set[_Worker] = set()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that run now."""
        with self._lock:
            return sorted(worker.pid for worker in self._running if worker.alive)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What a worker answers to the request; it has kept nothing of it afterwards.

        Raises:
            WorldFailed: the request crashed, outran its time or memory, or the worker did; the next request gets a working one.
        """
        line = json.dumps({**request, "limit_s": self._limit_s}).encode() + b"\n"
        slot = self._slots.get()
        kept: _Worker | None = None
        try:
            worker = slot if slot is not None and slot.alive else self._replace(slot)
            try:
                reply = json.loads(worker.ask(line, self._limit_s))
                kept = worker
            except json.JSONDecodeError as error:
                raise WorldFailed(f"the worker answered what is not JSON: {error}") from error
            finally:
                if kept is None:
                    self._discard(worker)
        finally:
            self._slots.put(kept)
        if "ok" not in reply:
            raise WorldFailed(f"request {request.get('op')!r} failed in the worker: {reply.get('failed', reply)}")
        answer: dict[str, Any] = reply["ok"]
        return answer

    def close(self) -> None:
        """Ends all workers; later requests fail."""
        with self._lock:
            self._closed = True
            running, self._running = self._running, set()
        for worker in running:
            worker.stop()

    def _replace(self, dead: _Worker | None) -> _Worker:
        if dead is not None:
            self._discard(dead)
        with self._lock:
            if self._closed:
                raise WorldFailed("the workers were closed")
            worker = _Worker(self._unpacked)
            self._running.add(worker)
        return worker

    def _discard(self, worker: _Worker) -> None:
        with self._lock:
            self._running.discard(worker)
        worker.stop()


@lru_cache(maxsize=4)
def shared_workers(unpacked: Path) -> Workers:
    """The workers of this process for one unpacked wheel, ended at exit."""
    workers = Workers(unpacked)
    atexit.register(workers.close)
    return workers
