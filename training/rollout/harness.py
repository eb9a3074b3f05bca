"""The harness: drives one policy through one world, as its table says, and says how it ended. Asks the model, calls the world."""

import inspect
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Literal

from ledger.errors import SettingsError
from training.bundles import Harness
from training.hooks import hooks, rewriting
from training.rollout.conversation import Conversation, pass_point
from training.rollout.episode import (
    Act,
    Answer,
    Ask,
    Beside,
    CallFailed,
    Clock,
    End,
    Episode,
    Hear,
    Record,
    SampledCall,
    Tools,
    nobody,
)
from training.rollout.harness_table import HarnessTable
from training.rollout.tool_formats import ReadCall, as_message, failed_result, read_answer, refusal, result_message, tools_text
from training.worlds import Observation, ToolCall

__all__ = [
    "DELEGATE", "Act", "Answer", "Ask", "Beside", "CallFailed", "End", "Episode", "Hear", "Record", "SampledCall", "drive", "harness_of",
    "nobody", "tool_loop",
]  # fmt: skip

_LOOP = ("harness", "conversation", "episode", "tool_formats", "tool_text")
"""The files that a harness's source is."""
DELEGATE: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "delegate",
        "description": "Give a task to another agent, who works in the same place and sees nothing else. Its answer is the result.",
        "parameters": {
            "type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"], "additionalProperties": False,
        },
    },
}  # fmt: skip
"""The tool by which the main agent of an orchestrator starts a sub-agent."""


@dataclass(frozen=True)
class _Through:
    """What a rollout goes through: the harness, the record, the user between steps, the clock and the other ways to the model."""

    episode: Episode
    harness: Harness
    record: Record
    hear: Hear
    clock: Clock
    beside: Beside | None

    @property
    def table(self) -> HarnessTable:
        return self.harness.table


@dataclass(frozen=True)
class _Turn:
    """What is being answered: the user turn, the tools, the model calls allowed, and whether the user may still speak up."""

    number: int
    tools: Tools
    calls: int
    last: bool


def harness_of(table: HarnessTable) -> Harness:
    """The harness that a table describes, its hooks bound.

    Raises:
        MethodError: no such hook, or a parameter that it does not take.
        SettingsError: the style does not fit the hooks.
    """
    bound = tuple(hooks.bind(use.name, **use.params) for use in table.hooks)
    names = rewriting(bound)
    if table.style == "chat" and names:
        raise SettingsError(f"style 'chat' only appends, and hook {names[0]} rewrites the history; allowed: style 'rewritten'")
    if table.style == "rewritten" and not names:
        raise SettingsError(f"style 'rewritten' with hooks {[use.name for use in table.hooks]}; allowed: at least one that rewrites")
    if table.sub_agent is not None and table.tool_format == "compact" and not table.stops.texts:
        raise SettingsError("an orchestrator in compact format needs a stop text, since its answer in free words could name a tool")
    source = "\n".join(inspect.getsource(import_module(f"training.rollout.{name}")) for name in _LOOP)
    return Harness(source, table, bound)


def tool_loop(**choices: Any) -> Harness:
    """The harness with these keys of `HarnessTable`, and defaults for the others."""
    return harness_of(HarnessTable(**choices))


async def drive(
    episode: Episode,
    harness: Harness,
    ask: Ask,
    record: Record,
    *,
    hear: Hear = nobody,
    clock: Clock = time.monotonic,
    beside: Beside | None = None,
) -> End:
    """How the policy's way through all user turns ended; `episode` holds the state that it left.

    Args:
        ask, record: the way to the model and to the record.
        hear: what the user says between steps: appended to the conversation as it is, in the user turn that is under way.
        clock: seconds.
        beside: for a harness that rewrites the conversation or has sub-agents.

    Raises:
        CallFailed: a model call gave no answer.
        WorldFailed: the world broke.
        SettingsError: the harness needs `beside` and has none.
    """
    if beside is None and (harness.table.sub_agent is not None or rewriting(harness.hooks)):
        raise SettingsError(f"a harness of style {harness.table.style!r} rewrites or delegates; it is driven with `beside` alone")
    through = _Through(episode, harness, record, hear, clock, beside)
    talk = Conversation("agent", ask)
    turns = episode.draft.request["turns"]
    for number, said in enumerate(turns):
        offered = await episode.world.tools(episode.draft, turn=number)
        tools = _main_tools(offered, harness.table)
        _tell(talk, _system(episode, harness.table) if number == 0 else None, tools, harness.table)
        talk.messages.extend(said)
        turn = _Turn(number, tools, harness.table.calls_per_turn, number == len(turns) - 1)
        end = await _answered(talk, turn, through, offered)
        if isinstance(end, End):
            return end
    return End("finished", "policy", "answered every user turn")


def _system(episode: Episode, table: HarnessTable) -> str:
    own = episode.draft.request.get("system") or ""
    if table.system.mode in ("replace", "none"):
        return table.system.text
    return "\n\n".join(text for text in (own, table.system.text) if text)


def _tell(talk: Conversation, system: str | None, tools: Tools, table: HarnessTable) -> None:
    """Begin with the system prompt, and describe the tools where the format does, again whenever they are others."""
    text = system or ""
    if table.tools_in_prompt and list(tools) != list(talk.told):
        text = "\n\n".join(part for part in (text, tools_text(tools, table)) if part)
        talk.told = tools
    if text:
        talk.messages.append({"role": "system", "content": text})


def _main_tools(offered: Tools, table: HarnessTable) -> Tools:
    if table.sub_agent is None:
        return offered
    if "delegate" in [tool["function"]["name"] for tool in offered]:
        raise SettingsError("the world has a tool 'delegate' of its own; allowed for an orchestrator: a world without one")
    return [*_named(offered, table.sub_agent.main_tools), DELEGATE]


def _named(offered: Tools, names: Sequence[str]) -> list[Mapping[str, Any]]:
    return [tool for tool in offered if not names or tool["function"]["name"] in names]


async def _answered(talk: Conversation, turn: _Turn, through: _Through, offered: Tools) -> End | str:
    """The answer that ended the turn, or how the rollout ended in it."""
    episode, table = through.episode, through.table
    for _ in range(turn.calls):
        if episode.model_calls >= table.calls:
            return End("turn_limit", "policy", f"{episode.model_calls} model calls, the limit of a rollout")
        if episode.model_calls and talk.role == "agent":
            talk.messages.extend(through.hear(episode.model_calls, False))
        index = episode.model_calls
        answer = await _ask(talk, turn.tools, through)
        if isinstance(answer, End):
            return answer
        talk.messages.append(as_message(answer, table))
        reading = read_answer(answer, turn.tools, table, index)
        episode.counters.update({"markup_without_call": int(reading.markup), "lines_after_stop": reading.after_stop})
        length = len(talk.messages)
        await pass_point(talk, "after_model", episode, through.harness, through.beside)
        reminded = len(talk.messages) > length and talk.messages[-1]["role"] == "user"
        if answer.finish_reason == "length" and (table.tool_format != "native" or not reading.calls):
            return End("token_limit", "policy", "an answer was cut by its token limit")
        for call in reading.calls:
            shown = await _act(talk, call, answer.model_call_id, turn, through, offered=offered)
            talk.messages.append(result_message(call.sampled.call_id, shown, table))
        if reading.stopped and not reminded:
            late = through.hear(episode.model_calls, True) if turn.last and talk.role == "agent" else ()
            if not late:
                return answer.content or ""
            talk.messages.extend(late)
        if episode.sampling_s + episode.tool_s > table.wall_s:
            return End("wall_clock", "policy", f"{episode.sampling_s + episode.tool_s:.1f} s of sampling and tools")
    return End("turn_limit", "policy", f"{turn.calls} model calls in user turn {turn.number}, the limit of a turn")


async def _ask(talk: Conversation, tools: Tools, through: _Through) -> Answer | End:
    """The model's next answer; a conversation that is full is shortened once, if a hook does that."""
    episode, table = through.episode, through.table
    await pass_point(talk, "before_model", episode, through.harness, through.beside)
    if table.context_tokens is not None and talk.tokens is not None and talk.tokens >= table.context_tokens:
        _, shorter = await pass_point(talk, "context_full", episode, through.harness, through.beside)
        if not shorter:
            return End("context_full", "policy", f"{talk.tokens} tokens in the conversation; the limit is {table.context_tokens}")
    sent = () if table.tool_format != "native" else tools
    try:
        answer = await _persistent(talk, sent, through)
    except CallFailed as failed:
        if failed.ended_by != "context_full":
            raise
        # The call that failed keeps its index; what is asked from here on is another call.
        episode.model_calls += 1
        _, shorter = await pass_point(talk, "context_full", episode, through.harness, through.beside)
        if not shorter:
            raise
        answer = await _persistent(talk, sent, through)
    episode.model_calls += 1
    episode.sampling_s += answer.sampling_s
    talk.prompt_tokens = answer.prompt_tokens
    talk.tokens = None if answer.prompt_tokens is None else answer.prompt_tokens + (answer.sampled_tokens or 0)
    return answer


async def _persistent(talk: Conversation, tools: Tools, through: _Through) -> Answer:
    retries = through.table.retries
    for _ in range(retries.times):
        try:
            return await talk.ask(talk.messages, tools, through.episode.model_calls)
        except CallFailed as failed:
            if failed.ended_by != "engine_error" or failed.status not in retries.statuses:
                raise
            through.episode.counters["engine_retries"] += 1
    return await talk.ask(talk.messages, tools, through.episode.model_calls)


async def _act(
    talk: Conversation, call: ReadCall, model_call_id: str | None, turn: _Turn, through: _Through, *, offered: Tools
) -> str:  # fmt: skip
    """Carry out one call and record it; the text of its result for the policy."""
    episode, sampled = through.episode, call.sampled
    tool: Mapping[str, Any] = {"name": sampled.name, "arguments": sampled.arguments}
    passed, _ = await pass_point(talk, "before_tool", episode, through.harness, through.beside, tool=tool)
    began = through.clock()
    before = episode.world.digest(episode.state)
    by: Literal["world", "harness"] = "world"
    refused = refusal(call, turn.tools)
    if refused is not None or call.parsed is None:
        observation = refused or Observation("")
    elif passed is not None and passed.get("error_class"):
        by, observation = "harness", Observation(str(passed["result"]), str(passed["error_class"]))
    elif sampled.name == "delegate" and through.table.sub_agent is not None:
        by, observation = "harness", await _delegated(call.parsed, turn, through, offered)
    else:
        episode.state, observation = await episode.world.call(episode.state, ToolCall(sampled.name, call.parsed, sampled.call_id))
    latency_s = through.clock() - began + observation.delay_s
    # What a sub-agent sampled and did was counted where it happened.
    episode.tool_s += latency_s if by == "world" else 0.0
    episode.unslept_s += observation.delay_s
    after = episode.world.digest(episode.state)
    await through.record(Act(
        episode.tool_calls, turn.number, sampled, model_call_id, call.parsed, observation, before, after, latency_s, executed_by=by,
    ))  # fmt: skip
    episode.tool_calls += 1
    tool = {**tool, "result": observation.content, "error_class": observation.error_class}
    passed, _ = await pass_point(talk, "after_tool", episode, through.harness, through.beside, tool=tool)
    return observation.content if passed is None else str(passed["result"])


async def _delegated(arguments: Mapping[str, Any], turn: _Turn, through: _Through, offered: Tools) -> Observation:
    """What a sub-agent answers; its calls, its tools and its conversation are its own, the world's state is everybody's."""
    table, sub = through.table, through.table.sub_agent
    if sub is None or through.beside is None:
        raise SettingsError("a sub-agent was asked for and the harness has none")
    task = arguments.get("task")
    if not isinstance(task, str) or set(arguments) != {"task"}:
        return failed_result("delegate takes one argument, task, a text", "invalid_arguments")
    if through.episode.counters["sub_agents"] >= sub.starts:
        return failed_result(f"no further sub-agent: {sub.starts} were started, the limit", "sub_agent_limit")
    through.episode.counters["sub_agents"] += 1
    tools = _named(offered, sub.tools)
    talk = Conversation("sub_agent", through.beside.asker("sub_agent"))
    _tell(talk, sub.system, tools, table)
    talk.messages.append({"role": "user", "content": task})
    try:
        said = await _answered(talk, replace(turn, tools=tools, calls=sub.calls), through, offered)
    except CallFailed as failed:
        if failed.ended_by != "context_full":
            raise
        return failed_result("the sub-agent's conversation no longer fits its model's context", "sub_agent_failed")
    if isinstance(said, End):
        return failed_result(f"the sub-agent did not finish: {said.reason}", "sub_agent_failed")
    return Observation(said)
