"""Another rendering of a world: one tool that runs typed commands and answers in plain lines, over the same state. Runs the world."""

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ledger.bundle import BundleDraft
from ledger.canonical import parse
from ledger.errors import CanonicalError
from training.worlds import Diff, Observation, Snapshot, ToolCall, World

TOOL = "run"


class CommandLine:
    """A world behind a prompt: `update_ticket id=T104 fields.status=closed`.

    A value is JSON where it reads as JSON and text otherwise; a dot in a name goes into an object. Error classes stay the world's own.

    Attributes:
        name: the inner world's, so that its tasks can be done here.
        version: hex SHA-256 over this file and the inner version.
        source: what `version` was taken over.
        fidelity: the inner world's.
    """

    def __init__(self, inner: World[Any]) -> None:
        self.inner, self.name, self.fidelity = inner, inner.name, inner.fidelity
        self.source = f"{Path(__file__).read_text(encoding='utf-8')}\n# inner world: {inner.name} {inner.version}"
        self.version = hashlib.sha256(self.source.encode()).hexdigest()

    def tools(self, draft: BundleDraft, *, turn: int) -> list[dict[str, Any]]:
        """The schema of the one tool; its description lists the commands."""
        lines = []
        for tool in self.inner.tools(draft, turn=turn):
            function = tool["function"]
            names = list((function.get("parameters") or {}).get("properties") or {})
            lines.append(" ".join([function["name"], *(f"{name}=..." for name in names)]) + f": {function.get('description', '')}")
        parameters = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
        description = "Run a command. Commands:\n" + "\n".join(lines)
        return [{"type": "function", "function": {"name": TOOL, "description": description, "parameters": parameters}}]

    def call(self, state: Any, call: ToolCall) -> tuple[Any, Observation]:
        """The state after the command, and the inner answer as plain lines."""
        command = call.arguments.get("command") if call.name == TOOL and isinstance(call.arguments, Mapping) else None
        if not isinstance(command, str):
            return state, Observation(
                f"there is one tool, {TOOL}, with a command", "unknown_tool" if call.name != TOOL else "invalid_arguments"
            )
        try:
            inner = parsed(command)
        except ValueError as error:
            return state, Observation(f"cannot read the command: {error}", "malformed_arguments")
        after, observation = self.inner.call(state, ToolCall(inner.name, inner.arguments, call.call_id))
        return after, Observation(plain(observation.content), observation.error_class)

    def reset(self, draft: BundleDraft, *, seed: int) -> Any:
        """The inner initial state."""
        return self.inner.reset(draft, seed=seed)

    def snapshot(self, state: Any) -> Snapshot:
        """The inner state at rest."""
        return self.inner.snapshot(state)

    def restore(self, snapshot: Snapshot) -> Any:
        """The inner state that was put to rest."""
        return self.inner.restore(snapshot)

    def fork(self, snapshot: Snapshot, n: int) -> list[Any]:
        """`n` inner states."""
        return self.inner.fork(snapshot, n)

    def view(self, state: Any) -> Any:
        """The inner view."""
        return self.inner.view(state)

    def material(self, view: Any) -> Any:
        """The inner material part."""
        return self.inner.material(view)

    def diff(self, before: Any, after: Any) -> Diff:
        """The inner difference."""
        return self.inner.diff(before, after)

    def digest(self, state: Any) -> str:
        """The inner digest."""
        return self.inner.digest(state)


def command_of(call: ToolCall) -> ToolCall:
    """The call that makes the same inner call through the prompt."""
    words = [call.name, *(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in _flat(call.arguments, ""))]
    return ToolCall(TOOL, {"command": " ".join(shlex.quote(word) for word in words)}, call.call_id)


def parsed(command: str) -> ToolCall:
    """The inner call that a command makes.

    Raises:
        ValueError: it is empty, has an open quote, or a word that is no name=value.
    """
    words = shlex.split(command)
    if not words:
        raise ValueError("it is empty")
    arguments: dict[str, Any] = {}
    for word in words[1:]:
        name, equals, raw = word.partition("=")
        if not equals or not name:
            raise ValueError(f"{word!r} is no name=value")
        place = arguments
        *outer, last = name.split(".")
        for key in outer:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                raise ValueError(f"{name!r} goes into a value")
        place[last] = _value(raw)
    return ToolCall(words[0], arguments)


def plain(content: str) -> str:
    """JSON as lines of `place: value`; any other text as it is."""
    try:
        value = parse(content)
    except CanonicalError:
        return content
    return "\n".join(f"{place or 'answer'}: {item}" for place, item in _flat(value, "")) or "ok"


def _flat(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple) and value and any(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            yield from _flat(item, f"{place}.{index}")
    else:
        yield place, value


def _value(raw: str) -> Any:
    try:
        return parse(raw)
    except CanonicalError:
        return raw
