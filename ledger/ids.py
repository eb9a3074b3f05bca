"""Ids are made in Python: time-ordered ones for what happens once, digests for what must be the same when it is made again."""

import hashlib
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from ledger.canonical import canonical_bytes, validated_bytes

_VARIANT = {f"{n:x}": f"{n & 3 | 8:x}" for n in range(16)}
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


def uuid_of(sha256: bytes) -> str:
    """The UUIDv8 made of the first 122 free bits of a digest."""
    hexed = sha256[:16].hex()
    return f"{hexed[:8]}-{hexed[8:12]}-8{hexed[13:16]}-{_VARIANT[hexed[16]]}{hexed[17:20]}-{hexed[20:]}"


def stream_name(noun: str, ident: str) -> str:
    """The stream that belongs to one thing: `<noun>-<id>`."""
    return f"{noun}-{ident}"


def event_id(ledger_id: str, project: str, stream: str, key: str) -> str:
    """The id of the event with this idempotency key in this stream."""
    return uuid_of(hashlib.sha256(validated_bytes(["tallystick/event-id/1", ledger_id, project, stream, key])).digest())


def node_id(project: str, name: str) -> int:
    """The signed 64-bit id of a name in lineage: the first eight bytes of a digest, the same on every machine."""
    data = project.encode()
    return int.from_bytes(
        hashlib.sha256(b"tallystick/node/1" + len(data).to_bytes(4, "big") + data + name.encode()).digest()[:8], "big", signed=True
    )
