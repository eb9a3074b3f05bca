"""Event streams: splitting them into events, putting the chunks of an answer together, and playing a recorded answer as a stream."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from training.rollout.capture import CaptureMismatch, for_client

DONE = b"data: [DONE]\n\n"
MAX_EVENT_BYTES = 64 * 1024 * 1024


def event(payload: Mapping[str, Any] | bytes) -> bytes:
    """One server-sent event."""
    data = payload if isinstance(payload, bytes) else dumps(payload)
    return b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"


def dumps(value: Any) -> bytes:
    """JSON of a value; lone surrogates, which UTF-8 cannot hold, as escapes."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


class EventSplitter:
    """Splits bytes as they arrive into the data of whole server-sent events."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Data of the events that are complete now; comments and other fields are dropped.

        Raises:
            CaptureMismatch: an event longer than 64 MiB.
        """
        self._rest += data
        if b"\n" not in data:
            self._check_size()
            return []
        text = self._rest.replace(b"\r\n", b"\n")
        *events, self._rest = text.split(b"\n\n")
        self._check_size()
        found = []
        for block in events:
            lines = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
            if lines:
                found.append(b"\n".join(lines))
        return found

    def _check_size(self) -> None:
        if len(self._rest) > MAX_EVENT_BYTES:
            raise CaptureMismatch(f"an event of more than {MAX_EVENT_BYTES} bytes in the stream")


class StreamAssembly:
    """Puts the chunks of one streamed answer together into the answer that a call without streaming would have given."""

    def __init__(self) -> None:
        self.finished = False
        self.chunks = 0
        self._top: dict[str, Any] = {}
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._tool_calls: dict[int, dict[str, Any]] = {}
        self._choice: dict[str, Any] = {"index": 0, "finish_reason": None}
        self._token_ids: list[Any] | None = None
        self._logprobs: list[Any] | None = None

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Take in the next chunk.

        Raises:
            CaptureMismatch: a chunk of another shape, of a second choice, or with content after the finish.
        """
        self.chunks += 1
        choices = chunk.get("choices")
        if not isinstance(choices, list) or len(choices) > 1:
            raise CaptureMismatch(f"chunk {self.chunks} has choices {str(choices)[:80]!r}; allowed: a list of none or one")
        for key, value in chunk.items():
            if key not in ("choices", "object") and value is not None:
                self._top[key] = value
        for choice in choices:
            self._add_choice(choice)

    def _add_choice(self, choice: Any) -> None:
        if not isinstance(choice, dict) or choice.get("index", 0) != 0 or not isinstance(choice.get("delta"), dict | None) or self.finished:
            raise CaptureMismatch(f"chunk {self.chunks}: {'content after the finish' if self.finished else f'choice {str(choice)[:80]!r}'}")
        self._add_delta(choice.get("delta") or {})
        ids, logprobs = choice.get("token_ids"), choice.get("logprobs")
        if isinstance(ids, list):
            self._token_ids = [] if self._token_ids is None else self._token_ids
            self._token_ids.extend(ids)
        content = logprobs.get("content") if isinstance(logprobs, dict) else None
        if isinstance(content, list):
            self._logprobs = [] if self._logprobs is None else self._logprobs
            self._logprobs.extend(content)
        for key, value in choice.items():
            if key not in ("index", "delta", "token_ids", "logprobs") and value is not None:
                self._choice[key] = value
        self.finished = self._choice["finish_reason"] is not None

    def _add_delta(self, delta: Mapping[str, Any]) -> None:
        for key, value in delta.items():
            if key == "tool_calls":
                for call in value if isinstance(value, list) else []:
                    self._add_tool_call(call)
            elif key == "role" or not isinstance(value, str):
                if value is not None:
                    self._message[key] = value
            else:
                self._message[key] = (self._message.get(key) or "") + value

    def _add_tool_call(self, delta: Any) -> None:
        if not isinstance(delta, dict) or type(delta.get("index", 0)) is not int or not isinstance(delta.get("function"), dict | None):
            raise CaptureMismatch(f"chunk {self.chunks}: tool call {str(delta)[:80]!r}; allowed: an object with a numeric index")
        call = self._tool_calls.setdefault(delta.get("index", 0), {"type": "function", "function": {"name": "", "arguments": ""}})
        for key, value in delta.items():
            if key == "function":
                for part, text in (value or {}).items():
                    if isinstance(text, str):
                        call["function"][part] = call["function"].get(part, "") + text
            elif key != "index" and value is not None:
                call[key] = value

    def response(self) -> dict[str, Any]:
        """The answer so far."""
        message = dict(self._message)
        if self._tool_calls:
            message["tool_calls"] = [self._tool_calls[index] for index in sorted(self._tool_calls)]
        choice = {**self._choice, "message": message}
        if self._logprobs is not None:
            choice["logprobs"] = {"content": self._logprobs}
        if self._token_ids is not None:
            choice["token_ids"] = self._token_ids
        return {**self._top, "object": "chat.completion", "choices": [choice]}


def chunk_for_client(chunk: Mapping[str, Any], added: Sequence[str]) -> dict[str, Any] | None:
    """A chunk without what only we asked for; None where nothing is left of it that the client would have been sent."""
    if not added:
        return dict(chunk)
    stripped = for_client(chunk, added)
    choices = stripped.get("choices")
    if not choices and "stream_options.include_usage" in added:
        return None
    if choices and "return_token_ids" in added and all(not c.get("delta") and c.get("finish_reason") is None for c in choices):
        return None
    return stripped


def replayed(response: Mapping[str, Any], *, include_usage: bool) -> bytes:
    """A recorded answer (already without what we added) as a whole event stream, [DONE] included."""
    head = {key: response[key] for key in ("id", "created", "model", "system_fingerprint") if key in response}
    head["object"] = "chat.completion.chunk"
    choice = response["choices"][0]
    message = dict(choice["message"])
    calls = message.pop("tool_calls", None) or []
    message.setdefault("role", "assistant")
    deltas: list[dict[str, Any]] = [{key: value for key, value in message.items() if value is not None}]
    if calls:
        deltas.append({"tool_calls": [{"index": index, **call} for index, call in enumerate(calls)]})
    parts: list[dict[str, Any]] = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None} for delta in deltas]
    parts[0]["logprobs"] = choice.get("logprobs")
    events = [event({**head, "choices": [part]}) for part in parts]
    last = {key: value for key, value in choice.items() if key not in ("message", "logprobs", "index")}
    events.append(event({**head, "choices": [{"index": 0, "delta": {}, **last}]}))
    if include_usage and response.get("usage") is not None:
        events.append(event({**head, "choices": [], "usage": response["usage"]}))
    return b"".join([*events, DONE])
