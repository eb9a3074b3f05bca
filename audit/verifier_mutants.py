"""Further mutants of a right solution: of its calls, of the state that it ends in, and of what an adversary writes beside it. Pure."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from audit.bundle_mutants import Mutant
from audit.paths import Step
from training.worlds import Change
from training.worlds.difference import is_within

_STALE = timedelta(days=1)
_ALTERED = 4
_CLAIMS: Mapping[str, Any] = {
    "reward": 1.0, "score": 1.5, "passed": True, "verdict": {"passed": True, "status": "completed"}, "success": "true",
    "conditions": [{"name": "C1", "status": "passed", "in_basis": True}], "reward.json": '{"reward": 1.0}', "error": None,
}  # fmt: skip
"""What a verifier might mistake for its own answer; 1.5 is out of range."""


@dataclass(frozen=True)
class Edited:
    """An end state that no call made.

    Attributes:
        kind: what was done, with the kind of place that it was done to, such as `revert tickets.last_reminded_at`.
        view: the edited view.
        place: top-level key of the place; empty where it is the whole view.
    """

    kind: str
    view: Any
    place: str = ""


def stale_or_partial(steps: Sequence[Step], writes: Sequence[int]) -> Iterator[Mutant]:
    """Writes with an older time, writes with a field less, each write followed by one for something else, and every cut after a write.

    Args:
        steps: the reference.
        writes: indices of its calls that change the material state.
    """
    path = tuple(steps)
    for at in writes:
        for name, older in _older(path[at].arguments):
            yield Mutant(f"stale {path[at].name}.{name}", _put(path, at, older))
        for name, fewer in _fewer(path[at].arguments):
            yield Mutant(f"partial {path[at].name}.{name}", _put(path, at, fewer))
    for count, at in enumerate(writes):
        if 0 < count < len(writes) - 1:
            yield Mutant("partial path", path[: at + 1])


def instead_and_besides(steps: Sequence[Step], writes: Sequence[int], others: Mapping[str, Sequence[str]]) -> Iterator[Mutant]:
    """The whole solution, and after it what it did to one thing done to another thing as well.

    Args:
        others: id that the solution's writes name to the ids of like things that they leave alone.
    """
    path = tuple(steps)
    for known, strangers in others.items():
        about = [path[at] for at in writes if known in _texts(path[at].arguments)]
        for stranger in strangers:
            yield Mutant("overreach", (*path, *(replace(step, arguments=_renamed(step.arguments, known, stranger)) for step in about)))


def edited(view: Any, changes: Sequence[Change], rng: Random) -> Iterator[Edited]:
    """The end state with each place that the solution wrote put back, and with some places altered that it left alone.

    Args:
        view: JSON of the state that the solution ends in.
        changes: where it differs from the first state.
        rng: chooses the places to alter.
    """
    for change in changes:
        yield Edited(f"revert {_sort_of(change.path)}", _with(view, change.path, change.before), _top(change.path))
    places = [(path, value) for path, value in _leaves(view) if not any(is_within(path, change.path) for change in changes)]
    for path, value in rng.sample(places, min(_ALTERED, len(places))):
        yield Edited(f"alter {_sort_of(path)}", _with(view, path, _other(value)), _top(path))


def claimed(view: Any) -> Iterator[Edited]:
    """A state in which the policy wrote what a verdict or a reward looks like: at the top, and as a row of each table."""
    if not isinstance(view, Mapping):
        return
    for name, value in _CLAIMS.items():
        yield Edited(f"writes {name}", {**copy.deepcopy(dict(view)), name: value})
    yield Edited("writes all", {**copy.deepcopy(dict(view)), **_CLAIMS})


def emptied(view: Any) -> Iterator[Edited]:
    """States of which a part is missing, or all of it."""
    for kind, value in (("empty object", {}), ("empty text", ""), ("empty list", []), ("null", None)):
        yield Edited(kind, value)
    if isinstance(view, Mapping):
        for name in view:
            yield Edited(f"without {name}", {key: copy.deepcopy(value) for key, value in view.items() if key != name})
            if isinstance(view[name], Mapping) and view[name]:
                yield Edited(f"nothing in {name}", {**copy.deepcopy(dict(view)), name: {}})


def _older(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", {**arguments, name: changed}) for inner, changed in _older(value))
        elif isinstance(value, str) and (moved := _before(value)) is not None:
            yield name, {**arguments, name: moved}


def _fewer(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, value in arguments.items():
        if isinstance(value, Mapping) and len(value) > 1:
            for inner in value:
                yield f"{name}.{inner}", {**arguments, name: {key: item for key, item in value.items() if key != inner}}


def _before(text: str) -> str | None:
    """The time a day before, written as it was; None for what is no time."""
    if len(text) < len("2026-01-01") or not text[:4].isdigit():
        return None
    try:
        moved = datetime.fromisoformat(text) - _STALE
    except ValueError:
        return None
    made = moved.isoformat()
    return made.replace("+00:00", "Z") if text.endswith("Z") else made[: len(text)] if "T" not in text else made


def _put(path: tuple[Step, ...], at: int, arguments: Mapping[str, Any]) -> tuple[Step, ...]:
    return (*path[:at], replace(path[at], arguments=arguments), *path[at + 1 :])


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def _renamed(value: Any, known: str, other: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _renamed(item, known, other) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_renamed(item, known, other) for item in value]
    return other if value == known else value


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}/{_escaped(str(key))}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}/{index}")
    elif value is not None:
        yield path, value


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    # A time stays a time, so that a verifier has to look at it.
    return _before(value) or f"{value}_x"


def _with(view: Any, path: str, value: Any) -> Any:
    """A copy of the view with `value` at a place; None takes the place away."""
    made = copy.deepcopy(view)
    keys = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    if not keys:
        return value
    inside = made
    for key in keys[:-1]:
        inside = inside[int(key)] if isinstance(inside, list) else inside[key]
    last: Any = int(keys[-1]) if isinstance(inside, list) else keys[-1]
    if value is None and isinstance(inside, dict) and len(keys) < 3:
        inside.pop(last, None)
    elif isinstance(inside, list) and last >= len(inside):
        inside.append(value)
    else:
        inside[last] = value
    return made


def _sort_of(path: str) -> str:
    """The kind of place: first and last key, those of rows left out."""
    keys = path.split("/")[1:]
    return ".".join(dict.fromkeys((keys[0], keys[-1]))) if len(keys) > 2 else keys[0] if keys else "state"


def _top(path: str) -> str:
    return path.split("/")[1] if path else ""


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
