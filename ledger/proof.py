"""The leaf of an event: the one hash that commits to everything an event says. Needs only the standard library."""

import hashlib
from functools import lru_cache
from typing import NamedTuple

DOMAIN = "tallystick/event/1"
_ABSENT = (2**32 - 1).to_bytes(4, "big")
_LENGTHS = tuple(length.to_bytes(4, "big") for length in range(512))


class LeafFields(NamedTuple):
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
    f = fields
    head = _ZERO_DOMAIN + _known(f.ledger_id) + _encoded(f.event_id) + _known(f.project) + _encoded(f.stream)
    tail = _known(f.kind) + _known(str(f.schema_version)) + _known(f.canonicaliser) + _encoded(f.occurred_at) + _known(f.actor_id)
    return head, tail + _known(f.correlation_id) + _encoded(f.causation_id) + _encoded(f.key) + _LENGTHS[32] + f.body_hash


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


# Few values of these fields recur in very many leaves.
_known = lru_cache(maxsize=1024)(_encoded)
_ZERO_DOMAIN = b"\x00" + _encoded(DOMAIN)
