"""Ids are made in Python: time-ordered ones for what happens once, digests for what must be the same when it is made again."""

import hashlib
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from ledger.canonical import canonical_bytes
from ledger.proof import event_id as event_id
from ledger.proof import uuid_of as uuid_of

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The current time in UTC with microseconds."""
    return datetime.now(UTC)


def uuid7(random_bytes: bytes, *, unix_ms: int | None = None) -> str:
    """A UUIDv7 (RFC 9562): 48 bits of milliseconds, then 74 random bits.

    Args:
        random_bytes: at least 10 random bytes.
        unix_ms: milliseconds since 1970; now when None.
    """
    stamp = time.time_ns() // 1_000_000 if unix_ms is None else unix_ms
    value = (stamp & (2**48 - 1)) << 80 | int.from_bytes(random_bytes[:10], "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))


def derived_id(*parts: Any) -> str:
    """A UUIDv8 (RFC 9562) over the canonical form of `parts`: the same parts give the same id, on any machine."""
    return uuid_of(hashlib.sha256(canonical_bytes(list(parts))).digest())


def stream_name(noun: str, ident: str) -> str:
    """The stream that belongs to one thing: `<noun>-<id>`."""
    return f"{noun}-{ident}"


def node_id(project: str, name: str) -> int:
    """The signed 64-bit id of a name in lineage: the first eight bytes of a digest, the same on every machine."""
    data = project.encode()
    digest = hashlib.sha256(b"tallystick/node/1" + len(data).to_bytes(4, "big") + data + name.encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
