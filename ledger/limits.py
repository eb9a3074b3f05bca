"""What an append may hold at most: every limit in one place, checked before anything is written. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.errors import LimitExceeded

if TYPE_CHECKING:
    from ledger.blobs import Pending
    from ledger.prepared import Prepared

MIB = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """The most that is taken; a deployment may lower them, the stored form allows no more.

    Attributes:
        body_bytes: of one event's canonical body.
        blob_bytes: of one blob before it is encoded.
        events: in one append.
        append_bytes: of bodies, encoded blobs and tokens in one append.
        edges: of one event; their number is a smallint in the database.
        name_length: characters of a stream, key, actor or correlation id.
    """

    body_bytes: int = 64 * 1024
    blob_bytes: int = 1024 * MIB
    events: int = 100_000
    append_bytes: int = 2048 * MIB
    edges: int = 32_767
    name_length: int = 300


LIMITS = Limits()


def check_blob(size: int, limits: Limits = LIMITS) -> None:
    """Return when a blob of `size` bytes may be stored.

    Raises:
        LimitExceeded: it is too large.
    """
    if size > limits.blob_bytes:
        raise LimitExceeded(f"blob of {size} bytes; allowed: up to {limits.blob_bytes}")


def check_event(kind: str, body_bytes: int, edges: int, limits: Limits = LIMITS) -> None:
    """Return when an event of this size may be appended.

    Raises:
        LimitExceeded: its body is too long or it states too many edges.
    """
    if body_bytes > limits.body_bytes:
        raise LimitExceeded(f"{kind}: body of {body_bytes} bytes; allowed: up to {limits.body_bytes}; put large content in a blob")
    if edges > limits.edges:
        raise LimitExceeded(f"{kind}: {edges} edges; allowed: up to {limits.edges} an event; state them in several events")


def check_append(items: "Sequence[Prepared]", blobs: "Sequence[Pending]", limits: Limits = LIMITS) -> None:
    """Return when these events and blobs may be appended together.

    Raises:
        LimitExceeded: there are too many events, or too many bytes.
    """
    if len(items) > limits.events:
        raise LimitExceeded(f"{len(items)} events in one append; allowed: up to {limits.events}; append them in several")
    tokens = [item.new.tokens for item in items if item.new.tokens is not None]
    arrays = sum(len(data) for token in tokens for data in (token.prompt, token.sampled, token.logprobs) if data is not None)
    total = sum(len(item.body) for item in items) + sum(len(blob.data) for blob in blobs) + arrays
    if total > limits.append_bytes:
        raise LimitExceeded(f"{total} bytes in one append; allowed: up to {limits.append_bytes}; append in several")
