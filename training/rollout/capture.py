"""Capture: the real token ids and logprobs in an answer, checked against its own counts, and the answer without what we added."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from ledger import tokens
from ledger.canonical import MAX_INT, parse
from ledger.errors import CanonicalError, InvalidEvent, TallyError


class CaptureMismatch(TallyError):
    """An upstream's answer contradicts itself or lacks what was asked for, so it cannot be recorded as a sample."""


@dataclass(frozen=True)
class TokenTrace:
    """What one call sampled, as little-endian bytes; None where the answer does not give it.

    Attributes:
        prompt_ids: int32, shape (prompt tokens,).
        sampled_ids: int32, shape (sampled tokens,).
        logprobs: float32 in nats, same shape as `sampled_ids`.
    """

    prompt_ids: bytes | None = None
    sampled_ids: bytes | None = None
    logprobs: bytes | None = None

    @property
    def sampled_count(self) -> int:
        """Number of sampled tokens, 0 where unknown."""
        return 0 if self.sampled_ids is None else len(self.sampled_ids) // 4


def read_json(raw: bytes) -> dict[str, Any]:
    """The JSON object that an upstream sent.

    Raises:
        CaptureMismatch: not a JSON object, or one with NaN, infinities or duplicate keys.
    """
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            value = parse(raw)
        except CanonicalError as error:
            raise CaptureMismatch(str(error)) from error
    if not isinstance(value, dict):
        raise CaptureMismatch(f"answer is {type(value).__name__}; allowed: a JSON object")
    return value


def only_choice(response: Mapping[str, Any]) -> Mapping[str, Any]:
    """The one choice of an answer.

    Raises:
        CaptureMismatch: none, several, or one without a message or a finish reason.
    """
    choices = response.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        seen = f"{len(choices)} choices" if isinstance(choices, list) else f"choices of type {type(choices).__name__}"
        raise CaptureMismatch(f"answer has {seen}; allowed: exactly one")
    choice = choices[0]
    if not isinstance(choice.get("message"), dict) or not isinstance(choice.get("finish_reason"), str):
        raise CaptureMismatch(f"choice has finish_reason {choice.get('finish_reason')!r}; allowed: a message and a finish reason")
    return choice


def token_trace(response: Mapping[str, Any]) -> TokenTrace:
    """The tokens in a complete answer of vLLM.

    Raises:
        CaptureMismatch: ids or logprobs are missing, malformed, or not as many as `usage` and each other say.
    """
    choice = only_choice(response)
    trace = TokenTrace(
        _ids("prompt_token_ids", response.get("prompt_token_ids")),
        _ids("token_ids", choice.get("token_ids")),
        _logprobs(choice.get("logprobs")),
    )
    usage = usage_of(response)
    _agree("prompt_token_ids", trace.prompt_ids, "usage.prompt_tokens", usage.get("prompt_tokens"))
    _agree("token_ids", trace.sampled_ids, "usage.completion_tokens", usage.get("completion_tokens"))
    _agree("logprobs", trace.logprobs, "token_ids", trace.sampled_count)
    version_spans(response, trace.sampled_count, "")
    return trace


def partial_trace(response: Mapping[str, Any]) -> TokenTrace:
    """The tokens in an answer that broke off, as far as its parts are well formed and as many as each other."""
    choices = response.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else {}
    try:
        prompt = _ids("prompt_token_ids", response.get("prompt_token_ids"))
    except CaptureMismatch:
        return TokenTrace()
    try:
        sampled, logprobs = _ids("token_ids", choice.get("token_ids")), _logprobs(choice.get("logprobs"))
        _agree("logprobs", logprobs, "token_ids", len(sampled) // 4)
    except CaptureMismatch:
        return TokenTrace(prompt)
    return TokenTrace(prompt, sampled, logprobs)


def version_spans(response: Mapping[str, Any], count: int, model_version: str) -> list[tuple[str, int, int]]:
    """Which weights sampled which tokens: (version, start, end), from the answer's `weight_versions` where the server gives them.

    A server that gives none has sampled everything with `model_version`, which holds as long as nobody refreshes it during a call.

    Args:
        count: number of sampled tokens.
    Raises:
        CaptureMismatch: spans that do not cover the tokens one after another.
    """
    choices = response.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    stated = choice.get("weight_versions")
    if stated is None:
        return [(model_version, 0, count)]
    at, spans = 0, []
    for span in stated if isinstance(stated, list) else [stated]:
        known = isinstance(span, dict) and isinstance(span.get("version"), str)
        if not known or span.get("start") != at or type(span.get("end")) is not int or span["end"] < at:
            raise CaptureMismatch(f"weight_versions holds {span!r} at token {at}; allowed: version, start {at} and end, without gaps")
        at = span["end"]
        spans.append((span["version"], span["start"], at))
    if at != count:
        raise CaptureMismatch(f"weight_versions cover {at} tokens but {count} were sampled")
    return spans


def usage_of(response: Mapping[str, Any]) -> dict[str, int | None]:
    """Token counts that an answer states: whole numbers, None where it gives something else."""
    usage = response.get("usage")
    if not isinstance(usage, dict):
        return {}
    counts: dict[str, int | None] = {}
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        if name in usage:
            counts[name] = usage[name] if type(usage[name]) is int and abs(usage[name]) <= MAX_INT else None
    for name, part, key in (
        ("cached_tokens", "prompt_tokens_details", "cached_tokens"),
        ("reasoning_tokens", "completion_tokens_details", "reasoning_tokens"),
    ):
        details = usage.get(part)
        if isinstance(details, dict) and type(details.get(key)) is int and abs(details[key]) <= MAX_INT:
            counts[name] = details[key]
    return counts


def _ids(name: str, values: Any) -> bytes:
    if not isinstance(values, list):
        raise CaptureMismatch(f"{name} is {'missing' if values is None else type(values).__name__}; the server must return a list of ids")
    if set(map(type, values)) - {int}:
        raise CaptureMismatch(f"{name} holds {next(v for v in values if type(v) is not int)!r}; allowed: whole numbers")
    try:
        return tokens.ids_bytes(values)
    except (InvalidEvent, OverflowError) as error:
        raise CaptureMismatch(f"{name}: {error}") from error


def _logprobs(logprobs: Any) -> bytes:
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list):
        raise CaptureMismatch("logprobs.content is missing; the server must return one logprob a sampled token")
    values: list[Any] = [entry.get("logprob") if isinstance(entry, dict) else None for entry in content]
    if set(map(type, values)) - {float, int}:
        at = next(index for index, value in enumerate(values) if type(value) not in (float, int))
        raise CaptureMismatch(f"logprobs.content[{at}].logprob is {values[at]!r}; allowed: a number up to 0")
    try:
        return tokens.logprob_bytes(values)
    except InvalidEvent as error:
        raise CaptureMismatch(str(error)) from error


def _agree(name: str, data: bytes | None, other: str, count: int | None) -> None:
    seen = 0 if data is None else len(data) // 4
    if seen != count:
        raise CaptureMismatch(f"{name} has {seen} entries but {other} says {count}")


def for_client(response: Mapping[str, Any], added: Sequence[str]) -> dict[str, Any]:
    """An answer or a chunk of a stream without the fields that only we asked for."""
    result = dict(response)
    choices = result.get("choices")
    if "return_token_ids" in added:
        result.pop("prompt_token_ids", None)
    if isinstance(choices, list):
        result["choices"] = [_choice_for_client(choice, added) for choice in choices]
    if "stream_options.include_usage" in added and result.get("object") == "chat.completion.chunk":
        result.pop("usage", None)
    return result


def _choice_for_client(choice: Mapping[str, Any], added: Sequence[str]) -> dict[str, Any]:
    result = dict(choice)
    if "return_token_ids" in added:
        result.pop("token_ids", None)
    if "logprobs" in added and "logprobs" in result:
        result["logprobs"] = None
    return result
