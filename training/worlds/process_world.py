"""Worlds that live in worker processes: a state is the way to it, replayed when no worker stands there. Starts processes."""

import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ledger.bundle import BundleDraft
from ledger.canonical import canonical_bytes, digest
from ledger.errors import CanonicalError, WorldFailed
from training.worlds import Diff, Observation, Snapshot, ToolCall, process_host, worker_loop
from training.worlds.difference import differences
from training.worlds.process_host import Lease, WorkerPool, WorkerProgram


@dataclass(frozen=True)
class Step:
    """One call on the way to a state, and the digest of what came of it: observation and view."""

    name: str
    arguments: Mapping[str, Any]
    came_of_it: str


@dataclass(frozen=True)
class ProcessState:
    """A state as the way to it.

    Attributes:
        task: what the world resets from.
        seed: of the reset.
        start: digest of the view at the start of the way.
        saved: the environment's own save at that start, as its adapter wrote it; None starts from a reset.
        steps: the calls since.
        view_json: canonical bytes of the view at the end of the way.
    """

    task: Any
    seed: int
    start: str
    saved: str | None
    steps: tuple[Step, ...]
    view_json: bytes

    @cached_property
    def digest(self) -> str:
        """Hex SHA-256 of the view."""
        return hashlib.sha256(self.view_json).hexdigest()

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """A key for the start and for each step's end: equal for equal ways."""
        keys = [digest({"task": self.task, "seed": self.seed, "saved": self.saved}, allow_nul=True)]
        for step in self.steps:
            keys.append(digest([keys[-1], step.name, dict(step.arguments)], allow_nul=True))
        return tuple(keys)


class ProcessWorld:
    """A world whose environment runs in worker processes; must be closed.

    Args:
        name: folder name under `training/worlds`.
        program: what the workers run.
        source: everything that decides how the world behaves: our files, the installed packages, options.
        saves: the adapter saves its state itself; otherwise a snapshot is the way to the state and fidelity is `replay`.
        workers: live environments at most; each stands at one state.
    """

    def __init__(self, name: str, program: WorkerProgram, source: str, *, saves: bool = False, workers: int = 4) -> None:
        self.name, self.source = name, source
        self.version = hashlib.sha256(source.encode()).hexdigest()
        self.fidelity = "exact" if saves else "replay"
        self._saves = saves
        self._pool = WorkerPool(program, count=workers)
        self._tools: dict[str, list[dict[str, Any]]] = {}
        self._tools_lock = threading.Lock()

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers that run now."""
        return self._pool.pids

    def ask(self, op: str, *, limit_s: float | None = None, **arguments: Any) -> Any:
        """What any worker answers to another method of the adapter; its environment is not used afterwards.

        Raises:
            WorldFailed: as `WorkerProcess.ask`.
        """
        with self._pool.lent() as lease:
            return lease.worker.ask(op, limit_s=limit_s, **arguments)

    def tools(self, draft: BundleDraft, *, turn: int) -> list[dict[str, Any]]:
        """OpenAI tool schemas of the task, the same in every turn."""
        key = digest(draft.initial_state, allow_nul=True)
        with self._tools_lock:
            known = self._tools.get(key)
        if known is None:
            known = self.ask("tools", task=draft.initial_state)
            with self._tools_lock:
                self._tools[key] = known
        return known

    def reset(self, draft: BundleDraft, *, seed: int) -> ProcessState:
        """The initial state of the task; a seed within the task takes the place of `seed`."""
        return self.begin(draft.initial_state, seed=seed)[0]

    def begin(self, task: Any, *, seed: int = 0) -> tuple[ProcessState, Observation]:
        """The initial state of a task given as its `initial_state`, and the environment's first words."""
        seed = self._seed(task, seed)
        blank = ProcessState(task, seed, "", None, (), b"null")
        with self._pool.lent() as lease:
            reply = lease.worker.ask("reset", task=task, seed=seed)
            view = _canonical(reply["view"])
            lease.position = blank.keys[0]
        state = replace(blank, start=hashlib.sha256(view).hexdigest(), view_json=view)
        return state, Observation(str(reply["content"]))

    def call(self, state: ProcessState, call: ToolCall) -> tuple[ProcessState, Observation]:
        """The state after the call, and the observation; `state` itself stays as it was.

        Raises:
            WorldFailed: the environment broke, or replaying the way to `state` came out otherwise than before.
        """
        try:
            arguments = dict(call.arguments)
            canonical_bytes(arguments, allow_nul=True)
        except CanonicalError as error:
            return state, Observation(f"arguments are not valid: {error}", "malformed_arguments")
        with self._pool.lent(state.keys) as lease:
            _walk(lease, state)
            reply = lease.worker.ask("call", name=call.name, arguments=arguments)
            step = Step(call.name, arguments, _came_of_it(reply))
            after = replace(state, steps=(*state.steps, step), view_json=_canonical(reply["view"]))
            lease.position = after.keys[-1]
        return after, Observation(str(reply["content"]), reply["error_class"])

    def snapshot(self, state: ProcessState) -> Snapshot:
        """The state at rest: the environment's own save where it has one, else the way to the state."""
        if self._saves and (state.steps or state.saved is None):
            with self._pool.lent(state.keys) as lease:
                _walk(lease, state)
                state = replace(state, saved=lease.worker.ask("save"), start=state.digest, steps=())
                lease.position = state.keys[-1]
        steps = [[step.name, dict(step.arguments), step.came_of_it] for step in state.steps]
        way = {"task": state.task, "seed": state.seed, "start": state.start, "saved": state.saved, "steps": steps}
        return Snapshot(state.digest, canonical_bytes(way, allow_nul=True))

    def restore(self, snapshot: Snapshot) -> ProcessState:
        """The state that was put to rest, reached in a worker.

        Raises:
            WorldFailed: the bytes are no snapshot of this world, or the way leads to another state: the environment is not deterministic.
        """
        state = _parsed(snapshot.data)
        with self._pool.lent(state.keys) as lease:
            _walk(lease, state)
            state = replace(state, view_json=_canonical(lease.worker.ask("view")))
            lease.position = state.keys[-1]
        if state.digest != snapshot.snapshot_id:
            raise WorldFailed(f"the snapshot restores to digest {state.digest}; its id is {snapshot.snapshot_id}")
        return state

    def fork(self, snapshot: Snapshot, n: int) -> list[ProcessState]:
        """`n` states, each equal to the snapshot; states are values, so a call on one leaves the others alone."""
        return [self.restore(snapshot)] * n

    def view(self, state: ProcessState) -> Any:
        """The whole state as JSON, as far as the adapter sees it."""
        return json.loads(state.view_json)

    def material(self, view: Any) -> Any:
        """The view itself."""
        return view

    def diff(self, before: ProcessState, after: ProcessState) -> Diff:
        """Where the two views differ."""
        return differences(self.view(before), self.view(after))

    def digest(self, state: ProcessState) -> str:
        """Hex SHA-256 of the canonical form of the state's view."""
        return state.digest

    def close(self) -> None:
        """Ends the worker processes."""
        self._pool.close()

    @staticmethod
    def _seed(task: Any, seed: int) -> int:
        own = task.get("seed") if isinstance(task, Mapping) else None
        return own if isinstance(own, int) else seed


def world_source(folder: Path, frozen: str, options: Mapping[str, Any]) -> str:
    """What a process world's version is taken over: the adapter's files, the host's, the installed packages and the options.

    Args:
        folder: the adapter's folder.
        frozen: installed packages, one `name==version` a line.
        options: options that make another world.
    """
    files = [*sorted(folder.glob("*.py")), Path(str(worker_loop.__file__)), Path(str(process_host.__file__)), Path(__file__)]
    texts = [f"# {file.name}\n{file.read_text(encoding='utf-8')}" for file in files]
    packages = "".join(f"# {line}\n" for line in frozen.splitlines())
    return "\n".join([*texts, f"# packages\n{packages}", f"# options {canonical_bytes(dict(options)).decode()}\n"])


def _walk(lease: Lease, state: ProcessState) -> None:
    """Brings a worker to a state, from where it was left on the way there or from the start, and compares every step with the record."""
    worker = lease.worker
    if lease.reached == 0:
        if state.saved is None:
            view = worker.ask("reset", task=state.task, seed=state.seed)["view"]
        else:
            view = worker.ask("load", data=state.saved)["view"]
        _same("the start", hashlib.sha256(_canonical(view)).hexdigest(), state.start)
    for at in range(max(lease.reached - 1, 0), len(state.steps)):
        step = state.steps[at]
        reply = worker.ask("call", name=step.name, arguments=dict(step.arguments))
        _same(f"step {at} ({step.name})", _came_of_it(reply), step.came_of_it)


def _same(place: str, seen: str, recorded: str) -> None:
    if seen != recorded:
        raise WorldFailed(f"replaying {place} gave digest {seen}; recorded was {recorded}: the environment is not deterministic")


def _came_of_it(reply: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical({key: reply[key] for key in ("content", "error_class", "view")})).hexdigest()


def _canonical(view: Any) -> bytes:
    try:
        return canonical_bytes(view, allow_nul=True)
    except CanonicalError as error:
        raise WorldFailed(f"the environment's state has no canonical form: {error}") from error


def _parsed(data: bytes) -> ProcessState:
    try:
        way = json.loads(data)
        steps = tuple(Step(name, arguments, came_of_it) for name, arguments, came_of_it in way["steps"])
        return ProcessState(way["task"], way["seed"], way["start"], way["saved"], steps, b"null")
    except (ValueError, KeyError, TypeError) as error:
        raise WorldFailed(f"these bytes are no snapshot of a process world: {error!r}") from error
