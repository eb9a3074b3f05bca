"""PostgreSQL arrays in binary form, several times faster to send than the driver's own lists of Python values. Pure."""

import struct
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
"""Where PostgreSQL's binary timestamps begin."""
_HEADER = struct.Struct("!iiIii")
_NULL = b"\xff\xff\xff\xff"


def micros(moment: datetime) -> int:
    """Microseconds of an aware time since the epoch of binary timestamps."""
    since = moment - EPOCH
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds


def uuid_bytes(value: str) -> bytes:
    """The 16 bytes of a UUID written with hyphens."""
    return bytes.fromhex(value.replace("-", ""))


class _Array:
    """Values of one element type; None is NULL."""

    element = 0
    oid = 0
    encode: Callable[[Any], bytes]

    __slots__ = ("values",)

    def __init__(self, values: Iterable[Any]) -> None:
        self.values = list(values)


def _fixed(layout: str) -> Callable[[Any], bytes]:
    pack = struct.Struct("!i" + layout).pack
    size = struct.calcsize("!" + layout)
    return lambda value: pack(size, value)


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


class Texts(_Array):
    """text[]."""

    element, oid = 25, 1009
    encode = staticmethod(lambda value: _sized(value.encode()))


class Byteas(_Array):
    """bytea[]."""

    element, oid = 17, 1001
    encode = staticmethod(_sized)


class Ints(_Array):
    """int[]."""

    element, oid = 23, 1007
    encode = staticmethod(_fixed("i"))


class Bigints(_Array):
    """bigint[]."""

    element, oid = 20, 1016
    encode = staticmethod(_fixed("q"))


class Floats(_Array):
    """float8[]."""

    element, oid = 701, 1022
    encode = staticmethod(_fixed("d"))


class Uuids(_Array):
    """uuid[], from UUIDs written with hyphens."""

    element, oid = 2950, 2951
    encode = staticmethod(lambda value: b"\0\0\0\x10" + uuid_bytes(value))


class Times(_Array):
    """timestamptz[], from aware times."""

    element, oid = 1184, 1185
    encode = staticmethod(lambda value: b"\0\0\0\x08" + micros(value).to_bytes(8, "big", signed=True))


def array_bytes(array: _Array) -> bytes:
    """The binary form of a one-dimensional array."""
    values, encode = array.values, array.encode
    if not values:
        return _HEADER.pack(0, 0, array.element, 0, 0)[:12]
    nulls = None in values
    items = [_NULL if value is None else encode(value) for value in values] if nulls else list(map(encode, values))
    return _HEADER.pack(1, nulls, array.element, len(values), 1) + b"".join(items)


def _register(cls: type[_Array]) -> None:
    class ArrayDumper(Dumper):
        format = Format.BINARY
        oid = cls.oid

        def dump(self, obj: _Array) -> bytes:
            return array_bytes(obj)

    psycopg.adapters.register_dumper(cls, ArrayDumper)


for _cls in (Texts, Byteas, Ints, Bigints, Floats, Uuids, Times):
    _register(_cls)
