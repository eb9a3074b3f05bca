"""Rollouts: one attempt of one policy at one bundle, from its start to the one end that counts."""

from typing import ClassVar, Literal

from pydantic import Field

from ledger.events.base import BlobRef, Digest, Edge, EventBody, Fields, Finite, Grown, Identifier, Name, ShortText

EndedBy = Literal[
    "finished", "token_limit", "turn_limit", "context_full", "wall_clock", "world_error", "harness_error", "engine_error", "cancelled"
]
RolloutKind = Literal["ordinary", "recovery", "hinted", "branch", "probe", "expert", "dream", "rehearsal"]


class Participant(Fields):
    """Who takes part in a rollout."""

    name: Name
    role: Name
    model_version: Identifier | None
    endpoint: ShortText
    sampling: dict[str, int | float | str | bool | None]
    trainable: bool


class RolloutStarted(EventBody):
    """An attempt begins; `slot` is its place in the group, which one counted attempt fills."""

    rollout_id: Identifier
    group_id: Identifier
    bundle_id: Digest
    slot: int = Field(ge=0)
    attempt: int = Field(ge=1)
    rollout_kind: RolloutKind
    participants: list[Participant]
    seed: int
    parent_rollout_id: Identifier | None = None
    fork_step: int | None = None

    def stream(self) -> str:
        """`rollout-<id>`."""
        return f"rollout-{self.rollout_id}"

    def key(self) -> str:
        """One a rollout."""
        return "started"

    def edges(self) -> list[Edge]:
        """Rollout to its group, bundle, parent rollout and model versions."""
        me = self.stream()
        edges = [Edge(me, f"group-{self.group_id}", "member_of"), Edge(me, f"bundle-{self.bundle_id}", "attempts")]
        if self.parent_rollout_id is not None:
            edges.append(Edge(me, f"rollout-{self.parent_rollout_id}", "forked_from"))
        models = sorted({p.model_version for p in self.participants if p.model_version is not None})
        return edges + [Edge(me, f"model-{model}", "sampled_by") for model in models]


class ToolCalled(Grown, EventBody):
    """A tool call as sampled, as parsed, and as answered; `executed_by` is `harness` where the call never was the world's to answer."""

    later: ClassVar[frozenset[str]] = frozenset({"executed_by"})

    rollout_id: Identifier
    index: int = Field(ge=0)
    turn: int = Field(ge=0)
    model_call_id: Identifier | None
    tool_call_id: ShortText
    name: BlobRef
    arguments_sampled: BlobRef
    arguments_parsed: BlobRef | None
    result: BlobRef
    error_class: Name | None
    state_before: Digest
    state_after: Digest
    latency_s: Finite
    executed_by: Literal["world", "harness"] = "world"

    def stream(self) -> str:
        """The rollout's stream."""
        return f"rollout-{self.rollout_id}"

    def key(self) -> str:
        """One an index."""
        return f"tool:{self.index}"


class StateSnapshotted(EventBody):
    """The state at a step: its digest, its view, and the bytes that restore it."""

    rollout_id: Identifier
    step: int = Field(ge=0)
    state: Digest
    view: BlobRef
    snapshot: BlobRef

    def stream(self) -> str:
        """The rollout's stream."""
        return f"rollout-{self.rollout_id}"

    def key(self) -> str:
        """One a step."""
        return f"snapshot:{self.step}"


class HistoryRewritten(Grown, EventBody):
    """A harness dropped or summarised part of a conversation, and why.

    Attributes:
        index: number of the rewriting in the rollout.
        dropped: messages that are gone or were cut.
        kept: messages that stayed as they were.
        participant: whose conversation it was; None for the agent's.
        before_call: index of the model call before which it happened, in the order in which the harness asks.
    """

    later: ClassVar[frozenset[str]] = frozenset({"participant", "before_call"})

    rollout_id: Identifier
    index: int = Field(ge=0)
    dropped: int = Field(ge=0)
    kept: int = Field(ge=0)
    summary: BlobRef | None
    reason: ShortText
    participant: Name | None = None
    before_call: int | None = None

    def stream(self) -> str:
        """The rollout's stream."""
        return f"rollout-{self.rollout_id}"

    def key(self) -> str:
        """One an index."""
        return f"rewrite:{self.index}"


class RolloutEnded(Grown, EventBody):
    """The end of an attempt; `calls_digest` binds the model calls that it was made of.

    The seconds are None when whoever ended it did not run it; `superseded` attempts are kept and never counted; `counters` are the
    harness's fallbacks and special cases.
    """

    later: ClassVar[frozenset[str]] = frozenset({"counters"})

    rollout_id: Identifier
    ended_by: EndedBy
    boundary: Literal["policy", "world", "harness", "engine", "gateway", "operator"]
    reason: ShortText
    detail: BlobRef | None = None
    model_calls: int = Field(ge=0)
    tool_calls: int = Field(ge=0)
    calls_digest: Digest
    wall_s: Finite | None
    sampling_s: Finite | None
    tool_s: Finite | None
    superseded: bool = False
    counters: dict[Name, int] = Field(default_factory=dict)

    def stream(self) -> str:
        """The rollout's stream."""
        return f"rollout-{self.rollout_id}"

    def key(self) -> str:
        """One a rollout: a second end is refused."""
        return "ended"


class FaultInjected(EventBody):
    """A fault that was planted on purpose, in a stream of its own that attribution does not read; no edge leads to it either.

    Attributes:
        index: number of the fault in its rollout.
        fault: its kind.
        place: where it struck: `reset`, `call:3` for a tool call by its index, `step:2` before a model call by its index.
        seed: from which it was drawn.
        plan_id: digest of the plan of faults.
    """

    rollout_id: Identifier
    index: int = Field(ge=0)
    fault: Name
    place: Name
    seed: int | None = None
    plan_id: Digest | None = None

    def stream(self) -> str:
        """`fault-<rollout id>`."""
        return f"fault-{self.rollout_id}"

    def key(self) -> str:
        """One an index."""
        return f"fault:{self.index}"


class EngineRefreshed(EventBody):
    """An engine took new weights: which, whether its cache was reset, and the gap that a probe measured."""

    engine_id: Identifier
    model_version: Identifier
    cache_reset: bool
    probe_gap: Finite | None
    refresh: int = Field(ge=0)

    def stream(self) -> str:
        """`engine-<id>`."""
        return f"engine-{self.engine_id}"

    def key(self) -> str:
        """One a refresh."""
        return f"refreshed:{self.refresh}"
