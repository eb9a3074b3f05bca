"""The leaf of an event: the one hash that commits to everything an event says. Needs only the standard library."""

import hashlib
from dataclasses import dataclass

DOMAIN = "tallystick/event/1"
_ABSENT = (2**32 - 1).to_bytes(4, "big")
_LENGTHS = tuple(length.to_bytes(4, "big") for length in range(512))


@dataclass(frozen=True)
class LeafFields:
    """What a leaf commits to, in this order; position and server time stay outside.

    Attributes:
        occurred_at: the producer's clock, ISO 8601 UTC with six decimals and `Z`.
        body_hash: SHA-256 of the body's canonical bytes, 32 bytes.
    """

    ledger_id: str
    event_id: str
    project: str
    stream: str
    version: int
    kind: str
    schema_version: int
    canonicaliser: str
    occurred_at: str
    actor_id: str
    correlation_id: str | None
    causation_id: str | None
    key: str
    body_hash: bytes


def leaf_parts(fields: LeafFields) -> tuple[bytes, bytes]:
    """What is hashed into a leaf before the version and after it; `version` itself is not looked at.

    Every field is written with its length as 4 big-endian bytes; an absent one as the length 2^32 - 1 alone: it is not an empty one.
    """
    before = (DOMAIN, fields.ledger_id, fields.event_id, fields.project, fields.stream)
    after = (
        fields.kind, str(fields.schema_version), fields.canonicaliser, fields.occurred_at, fields.actor_id, fields.correlation_id,
        fields.causation_id, fields.key,
    )  # fmt: skip
    head = b"".join(map(_encoded, before))
    return b"\x00" + head, b"".join(map(_encoded, after)) + _LENGTHS[32] + fields.body_hash


def leaf_hash(fields: LeafFields) -> bytes:
    """32-byte SHA-256 of 0x00 followed by the domain and every field.

    Source: RFC 9162 section 2.1.1 (leaf prefix 0x00).
    """
    head, tail = leaf_parts(fields)
    return leaf_of_parts(head, fields.version, tail)


def leaf_of_parts(head: bytes, version: int, tail: bytes) -> bytes:
    """The leaf of an event whose other fields `leaf_parts` has encoded."""
    return hashlib.sha256(head + _encoded(str(version)) + tail).digest()


def _encoded(value: str | None) -> bytes:
    if value is None:
        return _ABSENT
    data = value.encode()
    return (_LENGTHS[len(data)] if len(data) < len(_LENGTHS) else len(data).to_bytes(4, "big")) + data
