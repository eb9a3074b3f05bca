"""Worlds: where a policy acts. One folder a world; a state is a value, so a snapshot, a fork and a restore are cheap and exact."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ledger.bundle import BundleDraft

S = TypeVar("S")


@dataclass(frozen=True)
class ToolCall:
    """One call as the world receives it.

    Attributes:
        name: tool name.
        arguments: parsed JSON object.
        call_id: the id that the model gave it, unique within a rollout.
    """

    name: str
    arguments: Mapping[str, Any]
    call_id: str = ""


@dataclass(frozen=True)
class Observation:
    """What the world answers.

    Attributes:
        content: text shown to the policy.
        error_class: None; or why the call was refused: unknown_tool, malformed_arguments, invalid_arguments, not_found, tool_error; or why
            it has no answer of its own: timeout, permission_denied, connection_error. After these three the call may have taken effect.
            A result that arrives cut or garbled has None, because nobody on the way noticed.
        delay_s: seconds that the answer took in the world's own time and that nobody slept; they count as tool time.
    """

    content: str
    error_class: str | None = None
    delay_s: float = 0.0


@dataclass(frozen=True)
class Change:
    """One place where two states differ; `before` or `after` is None where the place does not exist on that side."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Diff:
    """All places where two states differ, sorted by path."""

    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Snapshot:
    """A state at rest: `snapshot_id` is the state's digest, `data` the bytes that restore it."""

    snapshot_id: str
    data: bytes


@dataclass(frozen=True)
class AssistantTurn:
    """One scripted model answer: text, and tool calls as (name, raw argument string) exactly as a model would have sampled them."""

    content: str | None = None
    tool_calls: tuple[tuple[str, str], ...] = ()


class World(Protocol[S]):
    """Every world. Policy mistakes are observations with an error class; a broken world raises `ledger.errors.WorldFailed`.

    Attributes:
        name: folder name under `training/worlds`.
        version: hex SHA-256 over the world's source (and its wheel's name and version), which becomes its world_id.
        source: the text that `version` was taken over.
        fidelity: `exact` when a replay from the same snapshot gives the same state and observations.
    """

    name: str
    version: str
    source: str
    fidelity: str

    def tools(self, draft: BundleDraft, *, turn: int) -> list[dict[str, Any]]:
        """OpenAI tool schemas that the policy may call in user turn `turn` (0-based)."""
        ...

    def reset(self, draft: BundleDraft, *, seed: int) -> S:
        """The initial state of the task."""
        ...

    def call(self, state: S, call: ToolCall) -> tuple[S, Observation]:
        """The state after the call, and the observation; `state` itself is unchanged."""
        ...

    def snapshot(self, state: S) -> Snapshot:
        """The state at rest."""
        ...

    def restore(self, snapshot: Snapshot) -> S:
        """The state that was put to rest; its digest equals `snapshot.snapshot_id`."""
        ...

    def fork(self, snapshot: Snapshot, n: int) -> list[S]:
        """`n` independent states, each equal to the snapshot."""
        ...

    def view(self, state: S) -> Any:
        """The whole state as a JSON value."""
        ...

    def material(self, view: Any) -> Any:
        """The part of a view on which end states are compared: without logs, clocks, serial ids and free text."""
        ...

    def diff(self, before: S, after: S) -> Diff:
        """Where two states differ."""
        ...

    def digest(self, state: S) -> str:
        """Hex SHA-256 of the canonical form of the state's view."""
        ...


class AsyncWorld(Protocol[S]):
    """A world for asynchronous callers: what may wait for something is awaited, what only computes on values is not.

    Calls on one state are carried out in the order in which they were asked. A call whose caller is cancelled is carried out or never
    begun, and no later call on the same state overtakes it. Attributes, arguments and results are those of `World`.
    """

    name: str
    version: str
    source: str
    fidelity: str

    async def tools(self, draft: BundleDraft, *, turn: int) -> list[dict[str, Any]]:
        """As `World.tools`."""
        ...

    async def reset(self, draft: BundleDraft, *, seed: int) -> S:
        """As `World.reset`."""
        ...

    async def call(self, state: S, call: ToolCall) -> tuple[S, Observation]:
        """As `World.call`."""
        ...

    async def snapshot(self, state: S) -> Snapshot:
        """As `World.snapshot`."""
        ...

    async def restore(self, snapshot: Snapshot) -> S:
        """As `World.restore`."""
        ...

    async def fork(self, snapshot: Snapshot, n: int) -> list[S]:
        """As `World.fork`."""
        ...

    def view(self, state: S) -> Any:
        """As `World.view`."""
        ...

    def material(self, view: Any) -> Any:
        """As `World.material`."""
        ...

    def diff(self, before: S, after: S) -> Diff:
        """As `World.diff`."""
        ...

    def digest(self, state: S) -> str:
        """As `World.digest`."""
        ...
