"""What faults do to answers and states."""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from ledger.canonical import canonical_bytes, parse
from ledger.errors import BundleError, CanonicalError, SettingsError, WorldFailed
from training.worlds import Observation, Snapshot, ToolCall, World
from training.worlds.difference import pointer
from training.worlds.fault_kinds import (
    DroppedConnection,
    DuplicateDelivery,
    MalformedResult,
    PermissionDenied,
    SlowAnswer,
    StrayWrite,
    Timeout,
    TruncatedResult,
)
from training.worlds.fault_plan import Strike

S = TypeVar("S")
_STRUCTURE = '"{}[]:,'


def refusal(fault: Timeout | PermissionDenied | DroppedConnection) -> Observation:
    """What a policy sees in place of an answer.

    Raises:
        WorldFailed: it sees nothing more.
    """
    if isinstance(fault, Timeout):
        return _no_answer("timeout", f"no answer within {fault.seconds:g} s", fault.seconds)
    if isinstance(fault, PermissionDenied):
        return _no_answer("permission_denied", "you may not do this")
    if not fault.recovered:
        raise WorldFailed("connection reset by peer")
    return _no_answer("connection_error", "connection reset by peer")


def _no_answer(error_class: str, message: str, delay_s: float = 0.0) -> Observation:
    return Observation(json.dumps({"error": error_class, "message": message}, separators=(",", ":")), error_class, delay_s)


def arriving(answer: Observation, last: Observation | None, strike: Strike) -> Observation:
    """What arrives of the world's answer.

    Args:
        last: the world's answer to the call before, None before the first.
    """
    fault, rng = strike.fault, strike.rng
    if isinstance(fault, MalformedResult):
        garbled = _broken(answer.content, rng) if fault.form == "broken_json" else _retyped(answer.content, rng)
        return replace(answer, content=garbled)
    if isinstance(fault, TruncatedResult):
        keep = rng.uniform(0.2, 0.8) if fault.keep is None else fault.keep
        return replace(answer, content=answer.content[: int(len(answer.content) * keep)])
    if isinstance(fault, SlowAnswer):
        if not fault.sleep:
            return replace(answer, delay_s=answer.delay_s + fault.seconds)
        time.sleep(fault.seconds)
    if isinstance(fault, DuplicateDelivery) and fault.form == "stale_answer":
        assert last is not None
        return replace(last, delay_s=answer.delay_s)
    return answer


def _broken(text: str, rng: Random) -> str:
    """The text without one character, so that it is no JSON."""
    places = [place for place, char in enumerate(text) if char in _STRUCTURE]
    rng.shuffle(places)
    without = (text[:place] + text[place + 1 :] for place in places)
    return next((broken for broken in without if _parsed(broken) is None), "{" + text)


def _retyped(text: str, rng: Random) -> str:
    """JSON of another type than the text's."""
    value = _parsed(text)
    others = {"null": type(None), "[]": list, "0": int, json.dumps(text): str, "{}": dict}
    kind = dict if value is None else type(value[0])
    return rng.choice([other for other, its_kind in others.items() if its_kind is not kind])


def _parsed(text: str) -> tuple[Any] | None:
    try:
        return (json.loads(text),)
    except (ValueError, RecursionError):
        return None


def stray_write(world: World[S], state: S, fault: StrayWrite, rng: Random) -> S:
    """The state after a write that nobody asked for.

    Raises:
        SettingsError: this state cannot be written so.
    """
    if fault.call is not None:
        written, _ = world.call(state, ToolCall(fault.call.name, fault.call.arguments))
        return written
    view = json_of(world, state)
    if fault.path is not None:
        return _restored(world, _with(view, fault.path, fault.value))
    mixed = _mixtures(view)
    rng.shuffle(mixed)
    before = world.material(view)
    for path, value in mixed:
        if world.material(changed := _with(view, path, value)) != before:
            return _restored(world, changed)
    raise SettingsError(f"a stray write finds no two rows that differ in this state of world {world.name!r}; give it a call, or a path")


def json_of(world: World[S], state: S) -> Any:
    """The view that a snapshot of the state holds.

    Raises:
        SettingsError: the world's snapshots are no JSON of views.
    """
    snapshot = world.snapshot(state)
    try:
        view = parse(snapshot.data)
    except CanonicalError:
        view = None
    if view is None or hashlib.sha256(snapshot.data).hexdigest() != snapshot.snapshot_id:
        raise SettingsError(f"snapshots of world {world.name!r} are not the JSON of its views; a stray write needs a call there")
    return view


def _restored(world: World[S], view: Any) -> S:
    try:
        data = canonical_bytes(view, allow_nul=True)
        return world.restore(Snapshot(hashlib.sha256(data).hexdigest(), data))
    except (BundleError, CanonicalError) as error:
        raise SettingsError(f"a stray write that world {world.name!r} cannot hold: {error}") from error


def _with(value: Any, path: str, new: Any, *, above: str = "") -> Any:
    """A copy of a JSON value with `new` at a place; `above` is the place of the value itself.

    Raises:
        SettingsError: there is no such place.
    """
    if not path:
        return new
    head, _, rest = path[1:].partition("/")
    key = head.replace("~1", "/").replace("~0", "~")
    tail, here = "/" + rest if "/" in path[1:] else "", f"{above}/{head}"
    if isinstance(value, Mapping) and (key in value or not tail):
        return {**value, key: _with(value.get(key), tail, new, above=here)}
    if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
        return [*value[: int(key)], _with(value[int(key)], tail, new, above=here), *value[int(key) + 1 :]]
    there = ", ".join(value) if isinstance(value, Mapping) else repr(value)
    raise SettingsError(f"a stray write at {above + path!r}: at {above!r} there is {there[:200]}")


def _mixtures(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """All ways to copy a plain value from one row of a table, which is an object of objects, to another that differs in it."""
    if not isinstance(value, Mapping):
        return []
    found = [item for key in sorted(value) for item in _mixtures(value[key], path + pointer(key))]
    if len(value) < 2 or not all(isinstance(row, Mapping) for row in value.values()):
        return found
    for key in sorted(value):
        for other in sorted(value):
            for column in sorted(value[key].keys() & value[other].keys()):
                mine, theirs = value[key][column], value[other][column]
                if mine != theirs and not isinstance(mine, Mapping | list) and not isinstance(theirs, Mapping | list):
                    found.append((path + pointer(key, column), theirs))
    return found
