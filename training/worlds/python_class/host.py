"""Sandboxed workers of class worlds, one a class, started when first asked and ended when too many are idle. Starts processes."""

import itertools
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ledger.errors import WorldFailed
from training.worlds.runtime import Limits, Program, Sandbox, Worker

LIMITS = Limits(
    cpu_s=3600, wall_s=5.0, memory_bytes=512 << 20, threads=False, scratch_bytes=0, file_bytes=1 << 20, output_bytes=16 << 20
)  # fmt: skip
"""A class needs no files, and no thread that would outlast a call; its worker is replaced after an hour of processor time."""
HOST = Path(__file__)
PROGRAM = HOST.with_name("worker.py")
SCHEMAS = HOST.with_name("schemas.py")


class _Host:
    """The worker of one class."""

    def __init__(self, source: str) -> None:
        self.lock = threading.Lock()
        self.worker: Worker | None = None
        self.last_used = 0
        files = {"world_source.py": source.encode(), "training/worlds/python_class/schemas.py": SCHEMAS.read_bytes()}
        self.program = Program(source=PROGRAM.read_text(encoding="utf-8"), files=files)

    def stop(self) -> None:
        """Ends the worker."""
        if self.worker is not None:
            self.worker.close()
            self.worker = None


class Hosts:
    """Workers of classes; safe to use from many threads, one request a class at a time.

    Args:
        sandbox: where they run.
        sources: class world to the text of its class.
        limits: of each worker.
        most: workers that stay alive when idle.
    """

    def __init__(self, sandbox: Sandbox, sources: Mapping[str, str], *, limits: Limits = LIMITS, most: int = 8) -> None:
        self._sandbox = sandbox
        self._limits = limits
        self._most = most
        self._hosts = {name: _Host(source) for name, source in sources.items()}
        self._count = itertools.count(1)
        self._closed = False

    def ask(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """What the class answers.

        Raises:
            WorldFailed: the class is no world, or its worker crashed or was too slow; the next request gets a new one.
        """
        host = self._hosts[name]
        line = json.dumps(request).encode()
        with host.lock:
            if self._closed:
                raise WorldFailed("the class worlds are closed")
            if host.worker is None or not host.worker.alive:
                host.stop()
                host.worker = self._sandbox.start(host.program, limits=self._limits)
            host.last_used = next(self._count)
            try:
                reply: dict[str, Any] = json.loads(host.worker.ask(line))
            except WorldFailed as error:
                host.stop()
                raise WorldFailed(f"class world {name!r}: {error}") from error
            except ValueError as error:
                host.stop()
                raise WorldFailed(f"class world {name!r} answered what is not JSON: {error}") from error
        self._end_idle()
        if "failed" in reply:
            raise WorldFailed(f"class world {name!r}: {reply['failed']}")
        return reply

    def pids(self) -> dict[str, int]:
        """Class world to the process id of its worker, of those that run."""
        return {name: host.worker.pid for name, host in self._hosts.items() if host.worker is not None and host.worker.alive}

    def close(self) -> None:
        """Ends all workers; later requests fail."""
        self._closed = True
        for host in self._hosts.values():
            with host.lock:
                host.stop()

    def _end_idle(self) -> None:
        running = sorted((host for host in self._hosts.values() if host.worker is not None), key=lambda host: host.last_used)
        for host in running[: max(0, len(running) - self._most)]:
            if host.lock.acquire(blocking=False):
                try:
                    host.stop()
                finally:
                    host.lock.release()
