"""The leaf of an event: the one hash that commits to everything an event says. Needs only the standard library."""

import hashlib
from dataclasses import dataclass

DOMAIN = "tallystick/event/1"
_ABSENT = (2**32 - 1).to_bytes(4, "big")


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


def leaf_hash(fields: LeafFields) -> bytes:
    """32-byte SHA-256 of 0x00 followed by the domain and every field, each with its length as 4 big-endian bytes.

    An absent field is written as the length 2^32 - 1 alone, so it differs from an empty one.

    Source: RFC 9162 section 2.1.1 (leaf prefix 0x00).
    """
    hasher = hashlib.sha256(b"\x00")
    for value in (
        DOMAIN, fields.ledger_id, fields.event_id, fields.project, fields.stream, str(fields.version), fields.kind,
        str(fields.schema_version), fields.canonicaliser, fields.occurred_at, fields.actor_id, fields.correlation_id,
        fields.causation_id, fields.key, fields.body_hash,
    ):  # fmt: skip
        if value is None:
            hasher.update(_ABSENT)
            continue
        data = value if isinstance(value, bytes) else value.encode()
        hasher.update(len(data).to_bytes(4, "big") + data)
    return hasher.digest()
