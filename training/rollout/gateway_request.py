"""Requests to the gateway: strict reading of chat completions, what is added before they go upstream, and what clients are told."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import orjson

from ledger.canonical import MAX_INT, parse
from ledger.errors import CanonicalError, TallyError
from ledger.events.model_call import CallRole
from training.rollout.gateway_upstream import IDENTIFIER, Scalar, Upstream

ROLES: tuple[str, ...] = get_args(CallRole)
MAX_WAIT_S = 3600.0

_NUMBERS = (
    "temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "min_tokens", "seed", "frequency_penalty",
    "presence_penalty", "repetition_penalty", "length_penalty",
)  # fmt: skip
_FLAGS = ("stream", "logprobs", "return_token_ids", "parallel_tool_calls", "ignore_eos", "skip_special_tokens", "add_generation_prompt")
_COUNTED = ("stop", "stop_token_ids", "logit_bias", "bad_words", "allowed_token_ids")
_GUIDES = ("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar")
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


class Refusal(TallyError):
    """A request that the gateway does not answer with a sample; carries what the client is told."""

    def __init__(self, status: int, kind: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.headers = status, kind, message, dict(headers or {})


def error_body(kind: str, message: str, *, source: str = "gateway", call_id: str | None = None) -> bytes:
    """JSON of an error in the shape that OpenAI clients read."""
    text = message.encode("utf-8", "backslashreplace").decode("utf-8")
    return orjson.dumps({"error": {"type": kind, "message": text, "source": source, "call_id": call_id}})


@dataclass(frozen=True)
class Answer:
    """What a client is sent.

    Attributes:
        status: HTTP status.
        body: for a client that does not stream.
        headers: X-Tally-*, Retry-After.
        content_type: of `body`.
        response: the recorded answer without what we added; None for errors.
        tail: what ends a stream that has begun.
    """

    status: int
    body: bytes
    headers: dict[str, str]
    content_type: str = "application/json"
    response: dict[str, Any] | None = None
    tail: bytes = b""


@dataclass(frozen=True)
class ChatRequest:
    """A chat completion as a client sent it, checked.

    Attributes:
        raw: body bytes, exactly.
        body: the same, parsed.
        model: model name asked for.
        stream: whether an event stream is asked for.
        include_usage: whether that stream shall end with usage.
        participant: name in `X-Tally-Participant`, if any.
        role: role in `X-Tally-Role`, if any.
        correlation_id: what a call without a rollout belongs to, in `X-Tally-Correlation-Id`, if any.
        retried: the client says that it sends this request again.
        idempotency_key: client's key, if any.
        wait_s: seconds that it is ready to wait while the gateway is paused.
    """

    raw: bytes
    body: Mapping[str, Any]
    model: str
    stream: bool
    include_usage: bool
    participant: str | None
    role: CallRole | None
    correlation_id: str | None
    retried: bool
    idempotency_key: str | None
    wait_s: float


def read_chat(raw: bytes, headers: Mapping[str, str]) -> ChatRequest:
    """The request in a body and its headers.

    Raises:
        Refusal: 400, naming what was seen and what is allowed.
    """
    body = _object(raw)
    model = body.get("model")
    if not isinstance(model, str) or not 0 < len(model) <= 200 or not model.isprintable():
        raise _invalid(f"model is {_show(model)}; allowed: a printable name of 1 to 200 characters")
    _check_messages(body.get("messages"))
    _check_fields(body)
    options = body.get("stream_options") or {}
    return ChatRequest(
        raw=raw, body=body, model=model, stream=body.get("stream") is True, include_usage=options.get("include_usage") is True,
        participant=_participant(headers), role=_role(headers), correlation_id=_correlation_id(headers),
        retried=_retry_count(headers) > 0, idempotency_key=_idempotency_key(headers), wait_s=_wait_s(headers),
    )  # fmt: skip


def _object(raw: bytes) -> dict[str, Any]:
    try:
        body = parse(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _invalid(f"body is not UTF-8 at byte {error.start}") from error
    except CanonicalError as error:
        raise _invalid(str(error)) from error
    if not isinstance(body, dict):
        raise _invalid(f"body is {_show(body)}; allowed: a JSON object")
    return body


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list) or not messages:
        raise _invalid(f"messages is {_show(messages)}; allowed: a list of at least one message")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _invalid(f"messages[{index}] is {_show(message)}; allowed: an object with a role")


def _check_fields(body: Mapping[str, Any]) -> None:
    for name in _NUMBERS:
        value = body.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value)):
            raise _invalid(f"{name} is {_show(value)}; allowed: a finite number or null")
    for name in _FLAGS:
        if not isinstance(body.get(name), bool | None):
            raise _invalid(f"{name} is {_show(body[name])}; allowed: true, false or null")
    n = body.get("n")
    if n is not None and (isinstance(n, bool) or n != 1):
        raise _invalid(f"n is {_show(n)}; allowed: 1, since every sample is a call of its own with its own record")
    for name, cls, allowed in (("stream_options", dict, "an object"), ("tools", list, "a list")):
        if not isinstance(body.get(name), cls | None):
            raise _invalid(f"{name} is {_show(body[name])}; allowed: {allowed} or null")
    if not isinstance(body.get("tool_choice"), str | dict | None):
        raise _invalid(f"tool_choice is {_show(body['tool_choice'])}; allowed: a string, an object or null")


def _participant(headers: Mapping[str, str]) -> str | None:
    name = headers.get("X-Tally-Participant")
    if name is not None and (not 0 < len(name) <= 200 or not name.isprintable()):
        raise _invalid(f"X-Tally-Participant is {_show(name)}; allowed: 1 to 200 printable characters")
    return name


def _role(headers: Mapping[str, str]) -> CallRole | None:
    role = headers.get("X-Tally-Role")
    for known in get_args(CallRole):
        if role == known:
            return known  # type: ignore[no-any-return]
    if role is not None:
        raise _invalid(f"X-Tally-Role is {_show(role)}; allowed: {', '.join(ROLES)}")
    return None


def _correlation_id(headers: Mapping[str, str]) -> str | None:
    name = headers.get("X-Tally-Correlation-Id")
    if name is not None and not IDENTIFIER.fullmatch(name):
        raise _invalid(f"X-Tally-Correlation-Id is {_show(name)}; allowed: an id that matches {IDENTIFIER.pattern}")
    return name


def _retry_count(headers: Mapping[str, str]) -> int:
    text = headers.get("x-stainless-retry-count", "0")
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise _invalid(f"x-stainless-retry-count is {_show(text)}; allowed: a whole number")
    return int(text)


def _idempotency_key(headers: Mapping[str, str]) -> str | None:
    key = headers.get("Idempotency-Key")
    if key is not None and not 0 < len(key) <= 300:
        raise _invalid(f"Idempotency-Key has {len(key)} characters; allowed: 1 to 300")
    return key


def _wait_s(headers: Mapping[str, str]) -> float:
    text = headers.get("X-Tally-Wait", "0")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.0 <= seconds <= MAX_WAIT_S:
        raise _invalid(f"X-Tally-Wait is {_show(text)}; allowed: 0 to {MAX_WAIT_S:.0f} seconds")
    return seconds


def _invalid(message: str) -> Refusal:
    return Refusal(400, "invalid_request", message)


def _show(value: Any) -> str:
    return "missing or null" if value is None else f"{type(value).__name__} {ascii(value)[:80]}"


def upstream_body(request: ChatRequest, upstream: Upstream) -> tuple[bytes, tuple[str, ...]]:
    """The bytes to send upstream, and the names of the fields that were added to what the client sent.

    Only engines that return tokens get additions: token ids, logprobs, and usage at the end of a stream. Everything else goes on
    byte for byte.
    """
    if not upstream.returns_tokens:
        return request.raw, ()
    body = request.body
    extra: dict[str, Any] = {name: True for name in ("return_token_ids", "logprobs") if body.get(name) is not True}
    if body.get("top_logprobs") is None:
        extra["top_logprobs"] = 0
    added = list(extra)
    if request.stream and not request.include_usage:
        extra["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
        added.append("stream_options.include_usage")
    if not extra:
        return request.raw, ()
    if body.keys() & extra.keys():
        return json.dumps({**body, **extra}, separators=(",", ":")).encode("ascii"), tuple(added)
    return request.raw.rstrip()[:-1] + b"," + orjson.dumps(extra)[1:], tuple(added)


def sampling_of(request: ChatRequest, upstream: Upstream) -> dict[str, Scalar]:
    """Sampling parameters with the values in effect, where known: the request's own over the server's defaults.

    `guided` says that a grammar masks the distribution, so that logprobs are those of the masked one. Lists appear as their lengths.
    """
    body = request.body
    result: dict[str, Scalar] = dict(upstream.sampling_defaults)
    for name in _NUMBERS:
        if body.get(name) is not None:
            result[name] = _number(body[name])
    for name in ("parallel_tool_calls", "ignore_eos", "skip_special_tokens", "add_generation_prompt"):
        if body.get(name) is not None:
            result[name] = body[name]
    for name in _COUNTED:
        if body.get(name):
            result[f"{name}_count"] = 1 if isinstance(body[name], str) else len(body[name]) if isinstance(body[name], list | dict) else 1
    tools = body.get("tools") or []
    choice = body.get("tool_choice")
    if tools or choice is not None:
        result["tools_count"] = len(tools)
        result["tool_choice"] = "named" if isinstance(choice, dict) else code(choice) if isinstance(choice, str) else "auto"
    response_format = body.get("response_format")
    wanted = response_format.get("type") if isinstance(response_format, dict) else None
    if isinstance(wanted, str):
        result["response_format"] = code(wanted)
    shaped = wanted not in (None, "text") or any(body.get(name) is not None for name in _GUIDES)
    result["guided"] = shaped or _calls_are_guided(tools, choice)
    return result


def _calls_are_guided(tools: Any, choice: Any) -> bool:
    """Whether vLLM constrains tool calls: always when one is required or named, and with `auto` only for tools marked as strict."""
    if not tools or choice == "none":
        return False
    if choice == "required" or isinstance(choice, dict):
        return True
    functions = [tool.get("function") for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    return any(isinstance(function, dict) and function.get("strict") is True for function in functions)


def code(text: str) -> str:
    """`text` where it is a short code such as `tool_calls`, else `other`: bodies of events hold no foreign text."""
    return text if _CODE.fullmatch(text) else "other"


def _number(value: int | float) -> int | float | str:
    return str(value) if isinstance(value, int) and abs(value) > MAX_INT else value
