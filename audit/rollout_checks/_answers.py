"""What a model call said: its text as it was sampled, its message and the tool calls in both. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from audit.rollout_subject import RolloutSubject, SeenCall
from ledger.canonical import parse
from ledger.errors import CanonicalError

_TAGGED = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_FUNCTION = re.compile(r"<function=([^>\s]+)>(.*?)</function>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>(.*?)</parameter>", re.DOTALL)


def message(subject: RolloutSubject, call: SeenCall) -> Mapping[str, Any]:
    """The assistant's message as the upstream gave it; empty where there is none."""
    choice = _choice(subject, call)
    held = choice.get("message")
    return held if isinstance(held, Mapping) else {}


def asked_calls(subject: RolloutSubject, call: SeenCall) -> list[Mapping[str, Any]]:
    """The tool calls that the upstream read from the answer."""
    held = message(subject, call).get("tool_calls")
    return [item for item in held if isinstance(item, Mapping)] if isinstance(held, Sequence) and not isinstance(held, str) else []


def sampled_text(subject: RolloutSubject, call: SeenCall) -> str | None:
    """The text of the sampled tokens, control tokens included; None where neither the answer spells its tokens nor a tokenizer is known."""
    logprobs = _choice(subject, call).get("logprobs")
    entries = logprobs.get("content") if isinstance(logprobs, dict) else None
    if isinstance(entries, list) and entries and all(isinstance(entry, dict) for entry in entries):
        spelled = [entry.get("bytes") for entry in entries]
        if all(isinstance(item, list) for item in spelled):
            return b"".join(map(bytes, spelled)).decode("utf-8", "replace")
        return "".join(str(entry.get("token", "")) for entry in entries)
    if call.tokens is None or call.tokens.sampled is None or call.answered is None or subject.decode is None:
        return None
    version = next((span.model_version for span in call.answered.version_spans), "")
    return subject.decode(version, call.tokens.sampled.tolist())


def calls_in(text: str) -> list[tuple[str, dict[str, str | Any]]]:
    """Name and arguments of the complete tool calls in a text, in the two common markups; what is broken is left out.

    A parameter in `<parameter=...>` is text as it stands there, without the one line break that the markup puts at either end.
    """
    return list(_calls(text))


def _calls(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for body in _TAGGED.findall(text) or [text]:
        if written := _FUNCTION.search(body):
            yield written[1], {name: value.removeprefix("\n").removesuffix("\n") for name, value in _PARAMETER.findall(written[2])}
        elif (call := _json_call(body)) is not None:
            yield call


def _json_call(text: str) -> tuple[str, dict[str, Any]] | None:
    try:
        value = parse(text.strip())
        arguments = value.get("arguments", value.get("parameters")) if isinstance(value, dict) else None
        arguments = parse(arguments) if isinstance(arguments, str) else arguments
    except CanonicalError:
        return None
    return (value["name"], arguments) if isinstance(arguments, dict) and isinstance(value.get("name"), str) else None


def _choice(subject: RolloutSubject, call: SeenCall) -> Mapping[str, Any]:
    choices = subject.answer(call).get("choices")
    first = choices[0] if isinstance(choices, Sequence) and choices else None
    return first if isinstance(first, Mapping) else {}
