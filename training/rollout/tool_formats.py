"""How a harness tells a policy of its tools and reads calls from its answers: native, compact lines, or JSON in text. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.canonical import parse
from ledger.errors import CanonicalError
from training.rollout.episode import Answer, Message, SampledCall, Tools
from training.rollout.harness_table import HarnessTable, StopRules
from training.rollout.tool_text import call_line, has_markup, parsed_line, result_text
from training.worlds import AssistantTurn, Observation


@dataclass(frozen=True)
class ReadCall:
    """A call as it was read: `refused` says why it cannot be made, and `parsed` is None then."""

    sampled: SampledCall
    parsed: Mapping[str, Any] | None
    refused: Observation | None = None


@dataclass(frozen=True)
class Reading:
    """What an answer says.

    Attributes:
        calls: its tool calls, in order.
        stopped: whether the user turn is answered with it, once the calls are made.
        markup: whether it holds tool-call markup and no call was read from it.
        after_stop: lines after a stop text, which nobody reads.
    """

    calls: tuple[ReadCall, ...]
    stopped: bool
    markup: bool = False
    after_stop: int = 0


def read_answer(answer: Answer, tools: Tools, table: HarnessTable, index: int) -> Reading:
    """What the answer to model call `index` says in the harness's format."""
    text, stops = answer.content or "", table.stops
    if table.tool_format == "native":
        calls = tuple(ReadCall(call, *parsed_object(call.arguments)) for call in answer.tool_calls)
        last = text.strip().rpartition("\n")[2].strip()
        return Reading(calls, not calls or last in stops.texts, not calls and has_markup(text))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    stop = next((n for n, line in enumerate(lines) if line in stops.texts), None)
    told = lines if stop is None else lines[:stop]
    read = _compact(told, tools, stops) if table.tool_format == "compact" else _json(told, stops)
    if not told and stop is None and not stops.no_tool_call:
        read = [("", "", None, failed_result(f"an answer is a call, or {stops.texts[0]}", "malformed_arguments"))]
    calls = tuple(
        ReadCall(SampledCall(f"call_{index}_{n}", name, arguments), parsed, refused)
        for n, (name, arguments, parsed, refused) in enumerate(read)
    )
    stopped = stop is not None or (stops.no_tool_call and not calls)
    return Reading(calls, stopped, not calls and has_markup(text), 0 if stop is None else len(lines) - stop - 1)


def as_message(answer: Answer, table: HarnessTable) -> Message:
    """The answer as the conversation goes on with it: its text as it was sampled."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.content or ""}
    if table.tool_format == "native" and answer.tool_calls:
        message["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.tool_calls
        ]
    return message


def result_message(call_id: str, content: str, table: HarnessTable) -> Message:
    """A tool's result as the policy is shown it."""
    shown = result_text(content) if table.results == "values" else content
    return {"role": "tool", "tool_call_id": call_id, "content": shown} if table.tool_format == "native" else _text_result(shown)


def tools_text(tools: Tools, table: HarnessTable) -> str:
    """The tools as a system prompt describes them: a line a tool."""
    if table.tool_format == "compact":
        head = "Tools, one call a line, arguments in this order, - for one left out:"
        return "\n".join([head, *(_usage(tool["function"]) for tool in tools)])
    head = 'Tools, one call a line as {"name": ..., "arguments": {...}}:'
    return "\n".join([head, *(json.dumps(tool["function"], separators=(",", ":"), ensure_ascii=False) for tool in tools)])


def written(turn: AssistantTurn, tools: Tools, table: HarnessTable) -> AssistantTurn:
    """A scripted answer in the harness's format: calls as text, and the first stop text at the end of an answer without a call.

    A call that compact lines cannot say (an unknown tool or argument, arguments that are no object) stands there as it was scripted.
    """
    if table.tool_format == "native":
        return turn
    stops = table.stops
    if not turn.tool_calls and stops.texts:
        own = [] if not stops.no_tool_call or not turn.content else turn.content.splitlines()
        return AssistantTurn("\n".join([*(line for line in own if line.strip() not in stops.texts), stops.texts[0]]))
    write = _compact_line if table.tool_format == "compact" else _json_line
    said = [turn.content] if turn.content and stops.no_tool_call else []
    return AssistantTurn("\n".join([*said, *(write(name, arguments, tools) for name, arguments in turn.tool_calls)]))


_Read = tuple[str, str, Mapping[str, Any] | None, Observation | None]


def _compact(lines: Sequence[str], tools: Tools, stops: StopRules) -> list[_Read]:
    known = {_name(tool) for tool in tools}
    read: list[_Read] = []
    for line in lines:
        (name, arguments), raw = parsed_line(line, tools), line.partition(line.split()[0])[2].strip()
        if stops.no_tool_call and name not in known:
            continue
        parsed, refused = parsed_object(arguments)
        if parsed is not None and "_" in parsed and name in known:
            why = f"{len(parsed['_'])} words more than it has arguments: {_usage_of(name, tools)}"
            parsed, refused = None, failed_result(why, "malformed_arguments")
        read.append((name, raw, parsed, refused))
    return read


def _json(lines: Sequence[str], stops: StopRules) -> list[_Read]:
    """Calls from one JSON value over all lines, else from one value a line."""
    whole = "\n".join(lines)
    texts = [whole] if _value(whole) is not None else list(lines)
    if stops.no_tool_call:
        texts = [text for text in texts if text.startswith(("{", "["))]
    read: list[_Read] = []
    for text in texts:
        value = _value(text)
        read += [_json_call(item, text) for item in (value if isinstance(value, list) else [value])]
    return read


def _json_call(value: Any, text: str) -> _Read:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or value.keys() - {"name", "arguments"}:
        return "", text, None, failed_result('a call is {"name": ..., "arguments": {...}}', "malformed_arguments")
    arguments = value.get("arguments", {})
    raw = json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)
    if not isinstance(arguments, dict):
        return value["name"], raw, None, failed_result("arguments must be a JSON object", "malformed_arguments")
    return value["name"], raw, arguments, None


def _value(line: str) -> Any:
    try:
        return parse(line)
    except CanonicalError:
        return None


def parsed_object(arguments: str) -> tuple[Mapping[str, Any] | None, Observation | None]:
    """The JSON object that an argument text is, or None and the observation that says why it is none."""
    try:
        value = parse(arguments)
    except CanonicalError as error:
        return None, failed_result(f"arguments are not valid: {str(error)[:80]}", "malformed_arguments")
    return (value, None) if isinstance(value, dict) else (None, failed_result("arguments must be a JSON object", "malformed_arguments"))


def failed_result(reason: str, error_class: str) -> Observation:
    """The observation of a call that was refused before it reached the world."""
    return Observation(json.dumps({"error": reason}), error_class)


def refusal(call: ReadCall, tools: Tools) -> Observation | None:
    """Why a call cannot be made: its arguments could not be read, or no such tool was offered; None when it can."""
    if call.parsed is None:
        return call.refused
    names = [_name(tool) for tool in tools]
    return None if call.sampled.name in names else failed_result(f"no such tool; there are {', '.join(names)}", "unknown_tool")


def _compact_line(name: str, arguments: str, tools: Tools) -> str:
    parsed, _ = parsed_object(arguments)
    try:
        return f"{name} {arguments}" if parsed is None else call_line(name, parsed, tools)
    except LookupError:
        return f"{name} {arguments}"


def _json_line(name: str, arguments: str, tools: Tools) -> str:
    return f'{{"name":{json.dumps(name)},"arguments":{arguments}}}'


def _text_result(content: str) -> Message:
    return {"role": "tool", "content": content}


def _name(tool: Mapping[str, Any]) -> str:
    return str(tool["function"]["name"])


def _usage_of(name: str, tools: Tools) -> str:
    return next(_usage(tool["function"]) for tool in tools if _name(tool) == name)


def _usage(function: Mapping[str, Any]) -> str:
    parameters = function.get("parameters", {})
    required = parameters.get("required", [])
    words = [key if key in required else f"[{key}]" for key in parameters.get("properties", {})]
    told = function.get("description", "")
    return " ".join([function["name"], *words]) + (f": {told}" if told else "")
