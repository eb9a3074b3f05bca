"""Where two JSON values differ, place by place, with RFC 6901 pointers as paths."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from training.worlds import Change, Diff

_ABSENT = object()


def differences(before: Any, after: Any) -> Diff:
    """All places where two JSON values differ, sorted by path.

    Objects are compared key by key and arrays index by index, down to the smallest value that differs; a row that is on one side only is
    one change with the whole row. 1 equals 1.0, and true does not equal 1.

    Args:
        before: any JSON value.
        after: any JSON value.
    """
    return Diff(tuple(sorted(_walk(before, after, ""), key=lambda change: change.path)))


def pointer(*keys: str) -> str:
    """The RFC 6901 pointer to the place reached by `keys`; no key is the whole value, the empty string."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)


def is_within(path: str, place: str) -> bool:
    """True when pointer `path` is `place` or lies inside it."""
    return path == place or path.startswith(place + "/")


def _walk(before: Any, after: Any, path: str) -> Iterator[Change]:
    if _is_object(before) and _is_object(after):
        for key in before.keys() | after.keys():
            left, right = before.get(key, _ABSENT), after.get(key, _ABSENT)
            # Most places hold equal text: they need no pointer and no walk of their own.
            if not (left is right or (type(left) is str and type(right) is str and left == right)):
                yield from _walk(left, right, path + pointer(str(key)))
    elif _is_array(before) and _is_array(after):
        for index in range(max(len(before), len(after))):
            yield from _walk(
                before[index] if index < len(before) else _ABSENT, after[index] if index < len(after) else _ABSENT, f"{path}/{index}"
            )
    elif not _same(before, after):
        yield Change(path, None if before is _ABSENT else before, None if after is _ABSENT else after)


def _is_object(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping)


def _is_array(value: Any) -> bool:
    return type(value) is list or (isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray))


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, bool) or isinstance(after, bool):
        return before is after
    return before is after or bool(before == after)
