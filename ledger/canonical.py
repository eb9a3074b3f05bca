"""Canonical form c1: the one byte string that a JSON value is hashed and stored as."""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from ledger.errors import CanonicalError

NAME = "c1"
MAX_INT = 2**53
MAX_DEPTH = 200
_NUL = b"\\u0000"
_LARGE = re.compile(rb"[:,\[]-?[0-9]{16,}[],}]").search

type_names = "null, bool, int, float, str, list, dict with str keys"
Json = Any


def canonical_bytes(value: Json, *, allow_nul: bool = False) -> bytes:
    """UTF-8 bytes of `value` with sorted keys, no spaces, and -0.0 written as 0.0.

    Args:
        value: JSON value of null, bool, int within 2^53, finite float, str, list/tuple, dict with str keys.
        allow_nul: accept \\u0000 in strings, for text that is stored as a blob and never as an event body.
    Raises:
        CanonicalError: the value has no canonical form; the message names the path and the value seen.
    """
    if _plain(value, 0):
        try:
            data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except orjson.JSONEncodeError:
            data = b""
        if data and (allow_nul or _NUL not in data):
            return data
    return orjson.dumps(_checked(value, "$", allow_nul, 0), option=orjson.OPT_SORT_KEYS)


def validated_bytes(value: Json, *, integers: bool = True) -> bytes:
    """As `canonical_bytes`, faster, for plain JSON of a validated event body, whose types already rule out NaN and infinities.

    Args:
        value: the body.
        integers: whether there may be any.
    Raises:
        CanonicalError: the value has no canonical form.
    """
    try:
        data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return canonical_bytes(value)
    return data if unsuspicious(data, integers=integers) else canonical_bytes(value)


def unsuspicious(data: bytes, *, integers: bool = True) -> bool:
    """Whether the encoder's output shows nothing that it lets pass and c1 does not; text that only looks like it is suspicious too."""
    return not (_NUL in data or b"-0.0" in data or (integers and _LARGE(data)))


def digest(value: Json, *, allow_nul: bool = False) -> str:
    """Lower-case hex SHA-256 of the canonical bytes of `value`."""
    return hashlib.sha256(canonical_bytes(value, allow_nul=allow_nul)).hexdigest()


def parse(data: bytes | str) -> Json:
    """The JSON value in `data`, refusing NaN, infinities and duplicate keys, which the standard parser lets pass.

    Raises:
        CanonicalError: `data` is not JSON of canonical content.
    """
    try:
        value = orjson.loads(data)
        # The encoder gives the same bytes only for text that says everything once, and nothing that the two parsers read differently.
        if orjson.dumps(value) == (data if isinstance(data, bytes) else data.encode()):
            return value
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass
    try:
        return json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise CanonicalError(f"not JSON: {error}; seen {data[:80]!r}") from error


def _plain(value: Json, depth: int) -> bool:
    """Whether a value, every part of which is looked at, is of JSON's own types, and its numbers canonical as they are.

    Text is left to the encoder, which refuses lone surrogates and writes U+0000 so that it is seen.
    """
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return bool(-MAX_INT <= value <= MAX_INT)
    if kind is float:
        return math.isfinite(value) and (value != 0.0 or math.copysign(1.0, value) > 0.0)
    if depth >= MAX_DEPTH:
        return False
    if kind is dict:
        return all(type(key) is str and _plain(item, depth + 1) for key, item in value.items())
    return (kind is list or kind is tuple) and all(_plain(item, depth + 1) for item in value)


def _checked(value: Json, path: str, allow_nul: bool, depth: int) -> Json:
    if depth > MAX_DEPTH:
        raise CanonicalError(f"{path[:80]}: nested deeper than {MAX_DEPTH} levels")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return _checked_text(value, path, allow_nul)
    if isinstance(value, int):
        if abs(value) > MAX_INT:
            raise CanonicalError(f"{path}: integer {value} is beyond ±2^53; write it as a string")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise CanonicalError(f"{path}: {value} is not a JSON number; allowed: finite numbers or null with a reason")
        return 0.0 if value == 0.0 else float(value)
    if isinstance(value, Mapping):
        return _checked_object(value, path, allow_nul, depth)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_checked(item, f"{path}[{index}]", allow_nul, depth + 1) for index, item in enumerate(value)]
    raise CanonicalError(f"{path}: {type(value).__name__} has no canonical form; allowed: {type_names}")


def _checked_object(value: Mapping[Any, Json], path: str, allow_nul: bool, depth: int) -> dict[str, Json]:
    checked: dict[str, Json] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise CanonicalError(f"{path}: key {key!r} is {type(key).__name__}; allowed: str")
        name = _checked_text(key, f"{path} key", allow_nul)
        checked[name] = _checked(item, f"{path}.{name}", allow_nul, depth + 1)
    return checked


def _checked_text(value: str, path: str, allow_nul: bool) -> str:
    if not allow_nul and "\x00" in value:
        raise CanonicalError(f"{path}: text holds \\u0000 at {value.index(chr(0))}; store foreign text as a blob")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise CanonicalError(f"{path}: lone surrogate at {error.start} in {value[:40]!r}") from error
    return str(value)


def _refuse_constant(name: str) -> Json:
    raise CanonicalError(f"{name} is not JSON; allowed: finite numbers or null with a reason")


def _unique_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    result: dict[str, Json] = {}
    for key, value in pairs:
        if key in result:
            raise CanonicalError(f"duplicate key {key!r} in an object; every key may appear once")
        result[key] = value
    return result
