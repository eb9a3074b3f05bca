"""The tool-calling harness: drives one policy through one world over an OpenAI-compatible endpoint, and says how it ended."""

import inspect
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ledger.bundle import BundleDraft
from ledger.canonical import parse
from ledger.errors import CanonicalError
from ledger.events.rollout import EndedBy
from training.bundles import Harness
from training.worlds import AsyncWorld, Observation, ToolCall

Boundary = Literal["policy", "world", "harness", "engine", "gateway", "operator"]
Clock = Callable[[], float]


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
        tool_calls: the calls that it asks for.
        finish_reason: as the upstream says.
        model_call_id: the gateway's id of the call.
        sampling_s: seconds that the upstream took, without waiting in the gateway; 0 until the gateway is asked.
    """

    content: str | None
    tool_calls: tuple[SampledCall, ...]
    finish_reason: str | None
    model_call_id: str | None
    sampling_s: float = 0.0


@dataclass(frozen=True)
class Act:
    """One tool call as it happened, ready to be recorded."""

    index: int
    turn: int
    sampled: SampledCall
    model_call_id: str | None
    parsed: Mapping[str, Any] | None
    observation: Observation
    state_before: str
    state_after: str
    latency_s: float


Ask = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]], int], Awaitable[Answer]]
"""(messages, tool schemas, call index) to the answer; raises `CallFailed`."""
Record = Callable[[Act], Awaitable[None]]
Hear = Callable[[int, bool], Sequence[Mapping[str, Any]]]
"""(number of the model call to come, whether the policy has answered the last user turn) to what the user says unasked, as messages."""


def nobody(step: int, ended: bool) -> Sequence[Mapping[str, Any]]:
    """Nothing: a user who speaks in the request alone."""
    return ()


@dataclass(frozen=True)
class _Through:
    """What a rollout goes through: the model, the record, the user between steps, and the clock."""

    ask: Ask
    record: Record
    hear: Hear
    clock: Clock


class CallFailed(Exception):
    """A model call gave no answer; says whose fault it was."""

    def __init__(self, ended_by: EndedBy, boundary: Boundary, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail[:300]}")
        self.ended_by, self.boundary, self.reason, self.detail = ended_by, boundary, reason, detail


@dataclass
class Episode:
    """A rollout under way: its last state and what has been counted, also when it ends by an exception.

    Attributes:
        state: the world's current state.
        model_calls: answered model calls so far.
        tool_calls: number of tool calls so far.
        sampling_s, tool_s: seconds spent sampling and in tools, a world's own time included; queueing and reset are not counted.
        unslept_s: the part of `tool_s` that was the world's own time and that nobody waited for.
    """

    world: AsyncWorld[Any]
    draft: BundleDraft
    state: Any
    model_calls: int = 0
    tool_calls: int = 0
    sampling_s: float = 0.0
    tool_s: float = 0.0
    unslept_s: float = 0.0


@dataclass(frozen=True)
class End:
    """How a rollout ended."""

    ended_by: EndedBy
    boundary: Boundary
    reason: str
    detail: str | None = None


def tool_loop(*, calls_per_turn: int = 12, calls: int = 40, max_tokens: int = 512, wall_s: float = 900.0) -> Harness:
    """The harness version of this file with its limits.

    Args:
        calls_per_turn: model calls a user turn may take.
        calls: model calls a rollout may take.
        max_tokens: sampled tokens a call may take.
        wall_s: seconds of sampling and tool time together.
    """
    limits = {"calls_per_turn": calls_per_turn, "calls": calls, "max_tokens": max_tokens, "wall_s": wall_s}
    return Harness("tool_loop", inspect.getsource(sys.modules[__name__]), limits, "whole history")


async def drive(episode: Episode, harness: Harness, ask: Ask, record: Record, *, hear: Hear = nobody, clock: Clock = time.monotonic) -> End:
    """How the policy's way through all user turns ended; `episode` holds the state that it left.

    Args:
        ask, record: the way to the model and to the record.
        hear: what the user says between steps: appended to the conversation as it is, in the user turn that is under way.
        clock: seconds.

    Raises:
        CallFailed: a model call gave no answer.
        WorldFailed: the world broke.
    """
    messages: list[Mapping[str, Any]] = []
    through = _Through(ask, record, hear, clock)
    if episode.draft.request.get("system"):
        messages.append({"role": "system", "content": episode.draft.request["system"]})
    for turn, said in enumerate(episode.draft.request["turns"]):
        messages.extend(said)
        end = await _user_turn(episode, harness, messages, turn, through)
        if end is not None:
            return end
    return End("finished", "policy", "answered every user turn")


async def _user_turn(episode: Episode, harness: Harness, messages: list[Mapping[str, Any]], turn: int, through: _Through) -> End | None:
    tools = await episode.world.tools(episode.draft, turn=turn)
    last = turn == len(episode.draft.request["turns"]) - 1
    for _ in range(int(harness.limits["calls_per_turn"])):
        if episode.model_calls >= harness.limits["calls"]:
            return End("turn_limit", "policy", f"{episode.model_calls} model calls, the limit of a rollout")
        if episode.model_calls:
            messages.extend(through.hear(episode.model_calls, False))
        answer = await through.ask(messages, tools, episode.model_calls)
        episode.model_calls += 1
        episode.sampling_s += answer.sampling_s
        messages.append(_as_message(answer))
        if not answer.tool_calls:
            if answer.finish_reason == "length":
                return End("token_limit", "policy", "an answer was cut by its token limit")
            if not (last and (late := through.hear(episode.model_calls, True))):
                return None
            messages.extend(late)
        for sampled in answer.tool_calls:
            observation = await _act(episode, sampled, answer.model_call_id, (turn, tools), through)
            messages.append({"role": "tool", "tool_call_id": sampled.call_id, "content": observation.content})
        if episode.sampling_s + episode.tool_s > harness.limits["wall_s"]:
            return End("wall_clock", "policy", f"{episode.sampling_s + episode.tool_s:.1f} s of sampling and tools")
    return End("turn_limit", "policy", f"{harness.limits['calls_per_turn']} model calls in user turn {turn}, the limit of a turn")


async def _act(
    episode: Episode,
    sampled: SampledCall,
    model_call_id: str | None,
    place: tuple[int, Sequence[Mapping[str, Any]]],
    through: _Through,
) -> Observation:
    turn, tools = place
    began = through.clock()
    before = episode.world.digest(episode.state)
    parsed, observation = _parsed(sampled.arguments)
    offered = [tool["function"]["name"] for tool in tools]
    if parsed is not None and sampled.name not in offered:
        observation = _refused(f"no such tool; there are {', '.join(offered)}", "unknown_tool")
    elif parsed is not None:
        call = ToolCall(sampled.name, parsed, sampled.call_id)
        episode.state, observation = await episode.world.call(episode.state, call)
    latency_s = through.clock() - began + observation.delay_s
    episode.tool_s += latency_s
    episode.unslept_s += observation.delay_s
    after = episode.world.digest(episode.state)
    await through.record(Act(episode.tool_calls, turn, sampled, model_call_id, parsed, observation, before, after, latency_s))
    episode.tool_calls += 1
    return observation


def _parsed(arguments: str) -> tuple[Mapping[str, Any] | None, Observation]:
    try:
        value = parse(arguments)
    except CanonicalError as error:
        return None, _refused(f"arguments are not valid: {str(error)[:80]}", "malformed_arguments")
    if not isinstance(value, dict):
        return None, _refused("arguments must be a JSON object", "malformed_arguments")
    return value, Observation("")


def _refused(reason: str, error_class: str) -> Observation:
    return Observation(json.dumps({"error": reason}), error_class)


def _as_message(answer: Answer) -> Mapping[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.content or ""}
    if answer.tool_calls:
        message["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.tool_calls
        ]
    return message
