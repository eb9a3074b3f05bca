"""A rollout's conversation: what was said to whom, each tool call under the answer that asked for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from ui.components.markup import as_json, chip, details, escape, long_text, plain
from ui.data import CallTrace, ToolTrace, Trace

_AVATARS = {"user": "user", "assistant": "assistant", "system": ":material/settings:", "tool": ":material/build:"}


@dataclass(frozen=True)
class Said:
    """One message of a conversation.

    Attributes:
        role: system, user, assistant, tool, or `note` for what the page has to say itself.
        text: as it was said; None when nothing was.
        call: the model call that an assistant message came from.
        tools: the tool calls that it asked for.
    """

    role: str
    text: str | None
    call: CallTrace | None = None
    tools: tuple[ToolTrace, ...] = ()


def participants(trace: Trace) -> list[str]:
    """Who made model calls in the rollout, in order of their first call."""
    return list(dict.fromkeys(call.participant for call in trace.calls))


def conversation(trace: Trace, participant: str | None) -> list[Said]:
    """Every message once, in order: a request repeats what was said before, and only what is new in it is taken."""
    results = {tool.result for tool in trace.tools}
    said: list[Said] = []
    history: list[Any] = []
    for call in (call for call in trace.calls if participant is None or call.participant == participant):
        messages = _messages(call.request)
        keys = [_key(message) for message in messages]
        kept = next((n for n, (a, b) in enumerate(zip(keys, history, strict=False)) if a != b), min(len(keys), len(history)))
        if kept < len(history):
            said.append(Said("note", f"the history was rewritten here: {len(history) - kept} earlier messages are gone or changed"))
        for message in messages[kept:]:
            if message.get("role") != "tool" or _text(message) not in results:
                said.append(Said(str(message.get("role", "unknown")), _text(message)))
        answer = _answer(call.response)
        tools = tuple(tool for tool in trace.tools if tool.model_call_id == call.call_id)
        said.append(Said("assistant", _text(answer) if answer else None, call, tools))
        history = [*keys, _key(answer)] if answer else keys
    known = {call.call_id for call in trace.calls}
    strays = tuple(tool for tool in trace.tools if tool.model_call_id not in known)
    return [*said, Said("note", "tool calls of no recorded model call", None, strays)] if strays else said


def _messages(request: Any) -> list[Mapping[str, Any]]:
    messages = request.get("messages") if isinstance(request, Mapping) else None
    return [message for message in messages if isinstance(message, Mapping)] if isinstance(messages, list | tuple) else []


def _answer(response: Any) -> Mapping[str, Any] | None:
    choices = response.get("choices") if isinstance(response, Mapping) else None
    first = choices[0] if isinstance(choices, list | tuple) and choices else None
    message = first.get("message") if isinstance(first, Mapping) else None
    return message if isinstance(message, Mapping) else None


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list | tuple):
        return "\n".join(str(part.get("text", part)) if isinstance(part, Mapping) else str(part) for part in content)
    return "" if content is None else str(content)


def _key(message: Mapping[str, Any]) -> tuple[Any, ...]:
    asked = message.get("tool_calls")
    functions = [call.get("function") for call in asked if isinstance(call, Mapping)] if isinstance(asked, list | tuple) else []
    names = tuple(str(function.get("name")) for function in functions if isinstance(function, Mapping))
    return str(message.get("role", "assistant")), _text(message), names


def show_conversation(trace: Trace, key: str) -> None:
    """The conversation of each participant as chat."""
    names = participants(trace)
    chosen = names[0] if names else None
    if len(names) > 1:
        chosen = st.selectbox("Participant", names, key=f"{key}-participant")
    messages = conversation(trace, chosen)
    if not messages:
        st.caption("No model call was recorded.")
    for n, message in enumerate(messages):
        _show(message, f"{key}-{trace.rollout.rollout_id}-{n}")


def _show(message: Said, key: str) -> None:
    if message.role == "note":
        st.caption(f":material/edit_note: {plain(message.text)}")
        _show_tools(message.tools, key)
        return
    with st.chat_message(message.role if message.role in ("user", "assistant") else "other", avatar=_AVATARS.get(message.role, "❔")):
        if message.role not in ("user", "assistant"):
            st.html(f'<div class="tl-label">{escape(message.role[:40])}</div>')
        if message.text:
            long_text(message.text, f"{key}-text")
        if message.call is not None:
            _show_call(message.call, bool(message.text or message.tools))
        _show_tools(message.tools, key)


def _show_call(call: CallTrace, spoke: bool) -> None:
    if call.status == "completed":
        if not spoke:
            st.caption("(an empty answer)")
        return
    state = "no answer was recorded: the call is dangling" if call.status is None else f"{call.status} ({call.error_source or 'unknown'})"
    st.html(f'<div class="tl">{chip(state, "warn")}{details("error", call.error) if call.error else ""}</div>')


def _show_tools(tools: Sequence[ToolTrace], key: str) -> None:
    for tool in tools:
        with st.container(border=True, key=f"{key}-tool-{tool.index}", gap=None):
            error = chip(tool.error_class, "bad") if tool.error_class else ""
            moved = chip("changed the state", "info") if tool.state_before != tool.state_after else ""
            st.html(
                f'<div class="tl"><b>{escape(tool.name)}</b> {chip(f"tool call {tool.index}")}{error}{moved}'
                f'<span style="color:gray">{tool.latency_s * 1000:.1f} ms</span></div><div class="tl-label">arguments as sampled</div>'
            )
            long_text(tool.arguments_sampled or "", f"{key}-arguments-{tool.index}", mono=True)
            if tool.arguments is None:
                st.html(chip("they could not be parsed", "bad"))
            else:
                st.html(f'<div class="tl">{details("as parsed", as_json(tool.arguments))}</div>')
            st.html('<div class="tl-label">result</div>')
            long_text(tool.result or "", f"{key}-result-{tool.index}", mono=True, limit=700)
