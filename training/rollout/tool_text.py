"""Tool calls as plain text, for policies that sample text alone: `compact` lines such as `mail ann@x.example T101`. Pure.

In the compact form a call is one line: the tool's name, then its arguments in the order of its schema, separated by blanks. An optional
argument that is left out is `-`, trailing ones are left away; an argument with a blank in it, or that is neither text, number nor truth
value, is written as JSON without blanks. A result is the values of its JSON in order, without names; null is `-`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ledger.canonical import parse
from ledger.errors import CanonicalError

LEFT_OUT = "-"
MARKUP = ("<tool_call", '{"name":', '"arguments":', "<function=", "[TOOL_CALLS]")
"""What a tool call looks like in one of the usual formats, when it was written as text."""


def call_line(name: str, arguments: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> str:
    """A call as one line.

    Args:
        tools: OpenAI tool schemas.
    Raises:
        LookupError: no such tool, or an argument that its schema does not have.
    """
    properties = _properties(name, tools)
    if unknown := [key for key in arguments if key not in properties]:
        raise LookupError(f"{name} takes no argument {unknown[0]!r}; it takes {', '.join(properties)}")
    words = [_word(arguments[key]) if key in arguments else LEFT_OUT for key in properties]
    while words and words[-1] == LEFT_OUT:
        words.pop()
    return " ".join([name, *words])


def parsed_line(line: str, tools: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Name and raw JSON arguments of a line; a line that is no call of a tool has its words under `_` so that the harness refuses it."""
    name, *words = line.split()
    try:
        properties = _properties(name, tools)
    except LookupError:
        return name, json.dumps({"_": words})
    named = {key: _value(word, kind) for (key, kind), word in zip(properties.items(), words, strict=False) if word != LEFT_OUT}
    if len(words) > len(properties):
        named["_"] = words[len(properties) :]
    return name, json.dumps(named, separators=(",", ":"), ensure_ascii=False)


def result_text(content: str) -> str:
    """A tool's JSON result as its values in order; text that is no JSON stays as it is."""
    try:
        value = parse(content)
    except CanonicalError:
        return content
    return " ".join(_values(value)) or LEFT_OUT


def has_markup(text: str) -> bool:
    """Whether a text holds what a tool call looks like in one of the usual formats."""
    return any(mark in text for mark in MARKUP)


def _properties(name: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    for tool in tools:
        if tool["function"]["name"] == name:
            properties = tool["function"]["parameters"].get("properties", {})
            return {key: str(schema.get("type", "string")) for key, schema in properties.items()}
    raise LookupError(f"no tool {name!r}; there are {', '.join(tool['function']['name'] for tool in tools)}")


def _word(value: Any) -> str:
    if isinstance(value, str) and value and value != LEFT_OUT and not any(letter.isspace() for letter in value):
        return value
    return json.dumps(value, separators=(",", ":")).replace(" ", "\\u0020")


def _value(word: str, kind: str) -> Any:
    if kind == "string" and not word.startswith('"'):
        return word
    try:
        return parse(word)
    except CanonicalError:
        return word


def _values(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [word for item in value.values() for word in _values(item)]
    if isinstance(value, list):
        return [word for item in value for word in _values(item)]
    return [LEFT_OUT if value is None or value == "" else str(value).lower() if isinstance(value, bool) else str(value)]
