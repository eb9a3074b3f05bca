"""Reads a policy's answers again as its harness had to, and says what the harness did to them and to the conversation. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from audit.paths import Step
from audit.replays import Cause
from audit.rollout_subject import RolloutSubject, SeenCall
from audit.world_replay import RecordedCall
from training.rollout.episode import Answer, SampledCall
from training.rollout.harness_table import HarnessTable
from training.rollout.tool_formats import ReadCall, parsed_object, read_answer

_WRITTEN = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_CUT = ("token_limit", "context_full")
_BROKEN = ("world_error", "harness_error", "engine_error", "cancelled", "wall_clock")


@dataclass(frozen=True)
class HarnessFacts:
    """What a rollout's harness is known to be.

    Attributes:
        table: its choices; None where they are not recorded, so that its reading of text cannot be repeated.
        limits: what it declares.
        rewrites: whether it declares that it rewrites conversations.
        tools: OpenAI schemas of the tools that every turn of the task offers.
        foreign: the agent's own harness drove it, which says nothing of how it keeps a conversation.
    """

    table: HarnessTable | None
    limits: Mapping[str, int | float]
    rewrites: bool
    tools: Sequence[Mapping[str, Any]] = ()
    foreign: bool = False


@dataclass(frozen=True)
class Reread:
    """What reading again found: causes in order, and the calls that were dropped, by the number of tool calls before them."""

    causes: tuple[Cause, ...] = ()
    dropped: Mapping[int, tuple[Step, ...]] = field(default_factory=dict)


def reread(subject: RolloutSubject, calls: Sequence[RecordedCall], facts: HarnessFacts) -> Reread:
    """What the harness did to the agent's answers and conversation."""
    asked = [call for call in subject.calls if _role(call) == "agent" and call.answered is not None and call.answered.status == "completed"]
    if subject.ended is not None and subject.ended[1].ended_by == "finished" and not subject.calls:
        return Reread((Cause("no_model_call", "it finished without a model call", (subject.ended[0],), 0),))
    causes, dropped = list[Cause](), dict[int, tuple[Step, ...]]()
    for place, call in enumerate(asked):
        # Ends in the middle of an answer leave calls unmade for a reason of their own.
        last = place == len(asked) - 1
        found = _dropped(subject, calls, call, facts, last=last)
        if found is not None:
            causes.append(found[0])
            dropped[found[0].call] = found[1]
        if (cut := _length_stop(subject, calls, call, facts, last=last)) is not None:
            causes.append(cut)
        if place and not facts.foreign and (lost := _history(subject, calls, asked[place - 1], call, facts)) is not None:
            causes.append(lost)
    return Reread(tuple(sorted(causes, key=lambda cause: cause.call)), dropped)


def _role(call: SeenCall) -> str:
    body = call.answered or call.sent
    return "unknown" if body is None else body.role


def _made_before(calls: Sequence[RecordedCall], subject: RolloutSubject, call: SeenCall) -> int:
    """Number of tool calls that were made before a model call."""
    own = {one.call_id: place for place, one in enumerate(subject.calls)}
    here = own[call.call_id]
    return sum(own.get(one.body.model_call_id or "", -1) < here for one in calls)


def _dropped(
    subject: RolloutSubject, calls: Sequence[RecordedCall], call: SeenCall, facts: HarnessFacts, *, last: bool
) -> tuple[Cause, tuple[Step, ...]] | None:  # fmt: skip
    """Calls that an answer holds and that were never made."""
    ended_by = None if subject.ended is None else subject.ended[1].ended_by
    if (last and ended_by in (*_CUT, *_BROKEN)) or any(one.body.model_call_id is None for one in calls):
        return None
    read = _reading(subject, call, facts)
    made = [one for one in calls if one.body.model_call_id == call.call_id]
    if read is None or len(read) <= len(made):
        return None
    left, turn = list(read), made[-1].body.turn if made else 0
    for one in made:
        name, raw = subject.text(one.body.name), subject.text(one.body.arguments_sampled)
        hit = next((item for item in left if item.sampled.name == name and _alike(item.sampled.arguments, raw)), None)
        if hit is None:
            return None
        left.remove(hit)
    steps = tuple(Step(turn, item.sampled.name, item.parsed) for item in left if item.parsed is not None)
    if not steps:
        return None
    names = ", ".join(step.name for step in steps)
    told = f"an answer asks for {len(read)} calls and {len(made)} were made: {names} dropped"
    place = _made_before(calls, subject, call) + len(made)
    return Cause("call_dropped_by_parser", told, (*call.event_ids, *(one.event_id for one in made)), place), steps


def _reading(subject: RolloutSubject, call: SeenCall, facts: HarnessFacts) -> tuple[ReadCall, ...] | None:
    """The calls in an answer as the harness's own rules read them; for native calls also those that stand in the text alone."""
    message, body = _message(subject, call), call.answered
    if message is None or body is None:
        return None
    text = message.get("content") if isinstance(message.get("content"), str) else None
    given = message.get("tool_calls") or ()
    native = tuple(
        SampledCall(str(one.get("id") or ""), str(one["function"].get("name")), str(one["function"].get("arguments")))
        for one in given if isinstance(one, Mapping) and isinstance(one.get("function"), Mapping)
    )  # fmt: skip
    table = facts.table or HarnessTable()
    if table.tool_format != "native" and facts.table is None:
        return None
    answer = Answer(text, native, body.finish_reason, call.call_id)
    read = read_answer(answer, facts.tools, table, body.index).calls
    if read or table.tool_format != "native" or not text:
        return read
    offered = {str(tool["function"]["name"]) for tool in facts.tools}
    written = [_written(match) for match in _WRITTEN.findall(text)]
    return tuple(item for item in written if item is not None and item.sampled.name in offered and item.parsed is not None)


def _written(text: str) -> ReadCall | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not isinstance(value.get("arguments"), dict):
        return None
    raw = json.dumps(value["arguments"])
    return ReadCall(SampledCall("", value["name"], raw), *parsed_object(raw))


def _message(subject: RolloutSubject, call: SeenCall) -> Mapping[str, Any] | None:
    choices = subject.answer(call).get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, Mapping) else None
    return message if isinstance(message, Mapping) else None


def _alike(one: str, other: str) -> bool:
    if one == other:
        return True
    left, _ = parsed_object(one)
    right, _ = parsed_object(other)
    return left is not None and left == right


def _length_stop(
    subject: RolloutSubject, calls: Sequence[RecordedCall], call: SeenCall, facts: HarnessFacts, *, last: bool
) -> Cause | None:
    """An answer that was cut by length where no declared limit was reached, or that was taken for a whole one."""
    body = call.answered
    if body is None or body.finish_reason != "length" or subject.ended is None:
        return None
    request, declared = subject.request(call), facts.limits.get("max_tokens")
    sent = next((request[name] for name in ("max_tokens", "max_completion_tokens") if isinstance(request.get(name), int)), None)
    place = _made_before(calls, subject, call)
    if sent is not None and declared is not None and sent < declared and not facts.foreign:
        told = f"an answer was allowed {sent} tokens; the harness declares {declared:g}"
        return Cause("length_stop_as_failure", told, call.event_ids, place)
    if sent is not None and (sampled := _sampled(call)) is not None and sampled < sent:
        told = f"an answer was cut by length after {sampled} tokens; it was allowed {sent}"
        return Cause("length_stop_as_failure", told, call.event_ids, place)
    if last and subject.ended[1].ended_by == "finished":
        return Cause("length_stop_as_failure", "an answer that was cut by length was taken for the last word",
                     (*call.event_ids, subject.ended[0]), place)  # fmt: skip
    return None


def _history(subject: RolloutSubject, calls: Sequence[RecordedCall], before: SeenCall, call: SeenCall, facts: HarnessFacts) -> Cause | None:
    """Messages that a request no longer holds, where no rewriting is declared, or where the conversation was not full."""
    told, now = _messages(subject, before), _messages(subject, call)
    if told is None or now is None or now[: len(told)] == told:
        return None
    first, index = (-1 if one.sent is None else one.sent.index for one in (before, call))
    rewrites = [
        (event_id, body) for event_id, body in subject.rewrites
        if (body.before_call is None or first < body.before_call <= index) and body.participant in (None, _participant(call))
    ]  # fmt: skip
    place, gone = _made_before(calls, subject, call), sum(message not in now for message in told)
    if not rewrites:
        reason = f"model call {index} is sent without {gone} of the {len(told)} messages before it, and nothing says that they were dropped"
        return Cause("history_cut", reason, call.event_ids, place) if gone else None
    if not facts.rewrites:
        reason = f"{gone} messages were dropped before model call {index} by a harness that declares the whole history"
        return Cause("history_cut", reason, (rewrites[0][0], *call.event_ids), place)
    limit, used = facts.limits.get("context_tokens"), _used(before)
    at = [use.params.get("at_tokens") for use in facts.table.hooks] if facts.table is not None else []
    full = min((number for number in (limit, *at) if isinstance(number, int | float)), default=None)
    if any(body.reason == "compaction" for _, body in rewrites) and full is not None and used is not None and used < full:
        reason = f"the conversation was shortened at {used} tokens; it is full at {full:g}"
        return Cause("history_cut", reason, (rewrites[0][0], *call.event_ids), place)
    return None


def _sampled(call: SeenCall) -> int | None:
    if call.answered is None:
        return None
    return call.answered.usage.get("completion_tokens") if call.answered.sampled_ids is None else call.answered.sampled_ids.count


def _participant(call: SeenCall) -> str | None:
    return None if call.sent is None else call.sent.participant


def _messages(subject: RolloutSubject, call: SeenCall) -> list[Any] | None:
    found = subject.request(call).get("messages")
    return found if isinstance(found, list) else None


def _used(call: SeenCall) -> int | None:
    usage = {} if call.answered is None else call.answered.usage
    parts = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
    return None if any(part is None for part in parts) else sum(part for part in parts if part is not None)
