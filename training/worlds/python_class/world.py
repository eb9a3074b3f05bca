"""The world: states are attributes as JSON; the class itself runs only inside the sandbox. Starts sandboxed processes."""

import ast
import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ledger.bundle import BundleDraft
from ledger.canonical import canonical_bytes
from ledger.errors import BundleError, CanonicalError, WorldFailed
from training.worlds import Diff, Observation, Snapshot, ToolCall
from training.worlds.difference import differences
from training.worlds.python_class.host import HOST, LIMITS, PROGRAM, SCHEMAS, Hosts
from training.worlds.runtime import Limits, Sandbox

NAME = "python_class"
CHANCE = "$random"
"""Key of a view that holds the seed and the number of draws, in worlds whose source names `random`."""
_UNSTEADY = re.compile(
    r"^(?!self\.)(.*\.)?(time|time_ns|monotonic|perf_counter|localtime|gmtime|now|utcnow|today|uuid1|uuid4|urandom|SystemRandom|token_\w+)$"
)
"""Calls that answer differently each time."""


@dataclass(frozen=True)
class ClassState:
    """An instance at one moment.

    Attributes:
        cls: name of the class world.
        attributes: the instance's attributes, canonical JSON.
        seed: what `random` is seeded with.
        draws: calls since the reset that drew from it.
        chance: whether the class can draw at all, and seed and draws are part of the view.
    """

    cls: str
    attributes: bytes
    seed: int
    draws: int
    chance: bool

    @property
    def view(self) -> dict[str, Any]:
        """Attributes by name, with `CHANCE` where the class draws."""
        attributes: dict[str, Any] = json.loads(self.attributes)
        return attributes | {CHANCE: {"seed": self.seed, "draws": self.draws}} if self.chance else attributes

    @cached_property
    def digest(self) -> str:
        """Hex SHA-256 of the canonical view."""
        data = canonical_bytes(self.view, allow_nul=True) if self.chance else self.attributes
        return hashlib.sha256(data).hexdigest()


class PythonClasses:
    """Generated classes as a world: attributes are the state, public methods the tools; must be closed.

    A task's initial state is `{"class": name, "state": attributes}`, with `seed` when the task fixes its own.

    Args:
        sources: class world to the text of its class; a text may define further classes with names of their own choosing.
        sandbox: where the classes run.
        limits: of each class's process; `wall_s` for each call.

    Raises:
        BundleError: no source, or a source that is no Python.
    """

    name = NAME

    def __init__(self, sources: Mapping[str, str], *, sandbox: Sandbox | None = None, limits: Limits = LIMITS) -> None:
        if not sources:
            raise BundleError("no class world; allowed: one or more sources")
        found = {name: _traits(name, source) for name, source in sources.items()}
        self._chance = {name: draws for name, (draws, _) in found.items()}
        # A class that asks for the time or for entropy gives other states when it is replayed.
        self.fidelity = "exact" if all(steady for _, steady in found.values()) else "approximate"
        self.source = _source(sources)
        self.version = hashlib.sha256(self.source.encode()).hexdigest()
        self._sources = dict(sources)
        self._hosts = Hosts(sandbox or Sandbox("hostile"), sources, limits=limits)
        self._described: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the class worlds."""
        return tuple(self._sources)

    @property
    def worker_pids(self) -> dict[str, int]:
        """Class world to the process id of its sandbox, of those that run."""
        return self._hosts.pids()

    def describe(self, cls: str) -> dict[str, Any]:
        """What the class says of itself: `class`, `doc`, `tools` and the `attributes` of an instance without an initial state.

        Raises:
            BundleError: no such class world.
            WorldFailed: the source is no world.
        """
        self._known(cls)
        with self._lock:
            if cls not in self._described:
                self._described[cls] = self._hosts.ask(cls, {"op": "describe"})
            return self._described[cls]

    def tools(self, draft: BundleDraft, *, turn: int) -> list[dict[str, Any]]:
        """OpenAI tool schemas of the class's public methods, the same in every turn."""
        tools: list[dict[str, Any]] = self.describe(self._initial(draft)["class"])["tools"]
        return tools

    def reset(self, draft: BundleDraft, *, seed: int) -> ClassState:
        """The instance that the task starts from; `random` is seeded by the task's own seed, if it has one, else by `seed`.

        Raises:
            BundleError: the draft's initial state names no class world.
            WorldFailed: no instance can be built from it, or its attributes are no JSON.
        """
        initial = self._initial(draft)
        cls, seed = initial["class"], initial.get("seed", seed)
        reply = self._hosts.ask(cls, {"op": "reset", "state": initial["state"], "seed": seed, "draws": 0})
        return self._state(cls, reply["attributes"], seed, reply["draws"])

    def call(self, state: ClassState, call: ToolCall) -> tuple[ClassState, Observation]:
        """The state after the call, and its result: a text as it is, else as JSON. A call that raises changes nothing.

        Raises:
            WorldFailed: the call outran its limits, ended the process, or left attributes that are no JSON.
        """
        try:
            arguments = canonical_bytes(dict(call.arguments), allow_nul=True).decode()
        except CanonicalError as error:
            return state, Observation(f"Arguments that cannot be read: {error}", "malformed_arguments")
        request = {
            "op": "call", "attributes": json.loads(state.attributes), "seed": state.seed, "draws": state.draws, "name": call.name,
            "arguments": json.loads(arguments),
        }  # fmt: skip
        reply = self._hosts.ask(state.cls, request)
        observation = Observation(reply["content"], reply["error_class"])
        if reply["attributes"] is None:
            return state, observation
        return self._state(state.cls, reply["attributes"], state.seed, reply["draws"]), observation

    def snapshot(self, state: ClassState) -> Snapshot:
        """The state at rest."""
        rest = {"class": state.cls, "attributes": json.loads(state.attributes), "seed": state.seed, "draws": state.draws}
        return Snapshot(state.digest, canonical_bytes(rest, allow_nul=True))

    def restore(self, snapshot: Snapshot) -> ClassState:
        """The state that was put to rest.

        Raises:
            WorldFailed: the bytes are no state of this world, or of another digest than the snapshot says.
        """
        try:
            rest = json.loads(snapshot.data)
            self._known(rest["class"])
            state = self._state(rest["class"], rest["attributes"], rest["seed"], rest["draws"])
        except (ValueError, KeyError, TypeError, BundleError) as error:
            raise WorldFailed(f"the snapshot is no state of a class world: {error}") from error
        if state.digest != snapshot.snapshot_id:
            raise WorldFailed(f"the snapshot restores to digest {state.digest}; its id is {snapshot.snapshot_id}")
        return state

    def fork(self, snapshot: Snapshot, n: int) -> list[ClassState]:
        """`n` states, each equal to the snapshot; states are values, so a call on one leaves the others alone."""
        return [self.restore(snapshot)] * n

    def view(self, state: ClassState) -> Any:
        """The attributes by name, with seed and draws under `CHANCE` where the class draws."""
        return state.view

    def material(self, view: Any) -> Any:
        """The attributes whose names have no leading underscore, without seed and draws."""
        return {name: value for name, value in view.items() if not name.startswith("_") and name != CHANCE}

    def diff(self, before: ClassState, after: ClassState) -> Diff:
        """Where the two views differ, place by place."""
        return differences(before.view, after.view)

    def digest(self, state: ClassState) -> str:
        """Hex SHA-256 of the canonical form of the state's view."""
        return state.digest

    def close(self) -> None:
        """Ends the sandboxes."""
        self._hosts.close()

    def _state(self, cls: str, attributes: Any, seed: int, draws: int) -> ClassState:
        try:
            return ClassState(cls, canonical_bytes(attributes, allow_nul=True), seed, draws, self._chance[cls])
        except CanonicalError as error:
            raise WorldFailed(f"class world {cls!r} has a state without a canonical form: {error}") from error

    def _known(self, cls: Any) -> None:
        if cls not in self._sources:
            raise BundleError(f"no class world {cls!r}; there are {', '.join(self._sources)}")

    def _initial(self, draft: BundleDraft) -> dict[str, Any]:
        initial = draft.initial_state
        if not isinstance(initial, dict) or not {"class", "state"} <= initial.keys() or not isinstance(initial["state"], dict):
            raise BundleError(f"bundle {draft.name!r}: initial_state must hold class and state (an object), seen {str(initial)[:80]}")
        self._known(initial["class"])
        return initial


def _traits(name: str, source: str) -> tuple[bool, bool]:
    """Whether a source uses `random` at all, and whether it calls nothing that answers differently each time."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError) as error:
        raise BundleError(f"class world {name!r} is no Python: {error}") from error
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    called = (ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call))
    return "random" in imported, not any(_UNSTEADY.match(function) for function in called)


def _source(sources: Mapping[str, str]) -> str:
    """The programs that run the classes, and the classes."""
    texts = [(path.name, path.read_text(encoding="utf-8")) for path in (Path(__file__), HOST, PROGRAM, SCHEMAS)]
    texts += [(f"class {name}", source) for name, source in sorted(sources.items())]
    return "\n".join(f"# {name}\n{text}" for name, text in texts)
