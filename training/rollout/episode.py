"""What passes between the harness, the model, the world and the record while a rollout is under way. Pure."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ledger.bundle import BundleDraft
from ledger.events.model_call import CallRole
from ledger.events.rollout import EndedBy
from training.hooks import Rewrite
from training.worlds import AsyncWorld, Observation

Boundary = Literal["policy", "world", "harness", "engine", "gateway", "operator"]
Clock = Callable[[], float]
Message = Mapping[str, Any]
Tools = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class SampledCall:
    """A tool call as the model's answer holds it: id, name and raw argument text."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Answer:
    """One model answer.

    Attributes:
        content: text, or None.
        tool_calls: the calls that it asks for, where the upstream reads them.
        finish_reason: as the upstream says.
        model_call_id: the gateway's id of the call.
        sampling_s: seconds that the upstream took, without waiting in the gateway; 0 until the gateway is asked.
        prompt_tokens, sampled_tokens: as the upstream counts them; None where it does not.
    """

    content: str | None
    tool_calls: tuple[SampledCall, ...]
    finish_reason: str | None
    model_call_id: str | None
    sampling_s: float = 0.0
    prompt_tokens: int | None = None
    sampled_tokens: int | None = None


@dataclass(frozen=True)
class Act:
    """One tool call as it happened, ready to be recorded; `executed_by` says whether it was the world's to answer or the harness's."""

    index: int
    turn: int
    sampled: SampledCall
    model_call_id: str | None
    parsed: Mapping[str, Any] | None
    observation: Observation
    state_before: str
    state_after: str
    latency_s: float
    executed_by: Literal["world", "harness"] = "world"


Ask = Callable[[Sequence[Message], Tools, int], Awaitable[Answer]]
"""(messages, tool schemas, call index) to the answer; raises `CallFailed`. Asked again for an index, it is a retry of that call."""
Record = Callable[[Act], Awaitable[None]]
Hear = Callable[[int, bool], Sequence[Message]]
"""(number of the model call to come, whether the policy has answered the last user turn) to what the user says unasked, as messages."""


def nobody(step: int, ended: bool) -> Sequence[Message]:
    """Nothing: a user who speaks in the request alone."""
    return ()


class Beside(Protocol):
    """What a harness needs that asks in more roles than the agent's, or rewrites the conversation."""

    def asker(self, role: CallRole) -> Ask:
        """The way to the model for another participant."""
        ...

    def rewrote(self, rewrite: Rewrite, role: CallRole, index: int) -> None:
        """Note what a hook rewrote before model call `index` in the conversation of the participant with `role`."""
        ...


class CallFailed(Exception):
    """A model call gave no answer; says whose fault it was, and the engine's HTTP status where it had one."""

    def __init__(self, ended_by: EndedBy, boundary: Boundary, reason: str, detail: str, *, status: int | None = None) -> None:
        super().__init__(f"{reason}: {detail[:300]}")
        self.ended_by, self.boundary, self.reason, self.detail, self.status = ended_by, boundary, reason, detail, status


@dataclass
class Episode:
    """A rollout under way: its last state and what has been counted, also when it ends by an exception.

    Attributes:
        state: the world's current state.
        model_calls: model calls so far, of all participants; the index of the next one.
        tool_calls: number of tool calls so far.
        sampling_s, tool_s: seconds spent sampling and in tools, a world's own time included; queueing and reset are not counted.
        unslept_s: the part of `tool_s` that was the world's own time and that nobody waited for.
        counters: fallbacks and special cases by name.
    """

    world: AsyncWorld[Any]
    draft: BundleDraft
    state: Any
    model_calls: int = 0
    tool_calls: int = 0
    sampling_s: float = 0.0
    tool_s: float = 0.0
    unslept_s: float = 0.0
    counters: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class End:
    """How a rollout ended."""

    ended_by: EndedBy
    boundary: Boundary
    reason: str
    detail: str | None = None
