"""Events made ready to be written: checked against their limits, in canonical form, hashed, with the ids of all that they name. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from ledger import canonical, ids
from ledger.blobs import Pending
from ledger.errors import InvalidEvent
from ledger.events import EventBody
from ledger.proof import LeafFields, leaf_parts

MAX_BODY_BYTES = 64 * 1024
MAX_NAME_LENGTH = 300


@dataclass(frozen=True)
class StagedTokens:
    """The tokens of a model call as they are staged until its rollout ends.

    Attributes:
        subject_id: whose they are.
        parent: event id of the call of the same stream whose prompt and sample this prompt begins with; None for none.
        shared: number of tokens that the prompt shares with its parent's prompt and sample.
        prompt: the rest of the prompt, little-endian int32; None when the prompt was not captured.
        sampled: little-endian int32, shape (sampled tokens,); None when not captured.
        logprobs: little-endian float32 in nats, one a sampled token; None when not captured.
    """

    subject_id: str
    parent: str | None
    shared: int
    prompt: bytes | None
    sampled: bytes | None
    logprobs: bytes | None


@dataclass(frozen=True)
class New:
    """An event to append.

    Attributes:
        body: what happened.
        occurred_at: the producer's clock, timezone-aware.
        actor_id: pseudonym of who did it.
        correlation_id: what it belongs to, such as a run.
        causation_id: event id of what caused it.
        blobs: the blobs that the body names and that may not be stored yet.
        tokens: of a model call.
    """

    body: EventBody
    occurred_at: datetime
    actor_id: str
    correlation_id: str | None = None
    causation_id: str | None = None
    blobs: tuple[Pending, ...] = ()
    tokens: StagedTokens | None = None


class NodeEdge(NamedTuple):
    """An edge of an event by the node ids of its ends."""

    child: int
    parent: int
    relation: str
    weight: float | None


class Prepared(NamedTuple):
    """An event ready to be written; all that is missing is the version that its stream gives it.

    Attributes:
        leaf_head: what its leaf hashes before the version.
        leaf_tail: what its leaf hashes after the version.
        children: names of the nodes that its edges start at, beside its stream.
        uses: ids of the blobs that it names.
    """

    new: New
    stream: str
    node: int
    key: str
    event_id: str
    kind: str
    schema_version: int
    body: bytes
    occurred_at: datetime
    leaf_head: bytes
    leaf_tail: bytes
    edges: tuple[NodeEdge, ...]
    children: tuple[str, ...]
    uses: tuple[bytes, ...]

    @property
    def content(self) -> tuple[str, int, bytes]:
        """What must be the same when the same key comes again."""
        return self.kind, self.schema_version, self.body


def prepare(ledger_id: str, project: str, new: New) -> Prepared:
    """The event in the form in which it is hashed and stored.

    Raises:
        InvalidEvent, CanonicalError: it does not fit its schema or its limits.
    """
    occurred, body = new.occurred_at, new.body
    if occurred.tzinfo is None:
        raise InvalidEvent(f"{body.kind}: occurred_at {occurred.isoformat()} has no time zone; allowed: aware times")
    if occurred.tzinfo is not UTC:
        occurred = occurred.astimezone(UTC)
    stream, key = body.stream(), body.key()
    for what, value in (("stream", stream), ("key", key), ("actor_id", new.actor_id), ("correlation_id", new.correlation_id or "-")):
        if not 0 < len(value) <= MAX_NAME_LENGTH or not value.isprintable():
            allowed = f"1 to {MAX_NAME_LENGTH}, printable"
            raise InvalidEvent(f"{body.kind}: {what} {value[:60]!r} has {len(value)} characters; allowed: {allowed}")
    data = canonical.validated_bytes(body.__pydantic_serializer__.to_python(body, mode="json"))
    if len(data) > MAX_BODY_BYTES:
        raise InvalidEvent(f"{body.kind}: body of {len(data)} bytes; allowed: up to {MAX_BODY_BYTES}; put large content in a blob")
    fields = LeafFields(
        ledger_id=ledger_id, event_id=ids.event_id(ledger_id, project, stream, key), project=project, stream=stream, version=0,
        kind=body.kind, schema_version=body.schema_version, canonicaliser=canonical.NAME, occurred_at=stamp(occurred),
        actor_id=new.actor_id, correlation_id=new.correlation_id, causation_id=new.causation_id, key=key, body_hash=sha256(data).digest(),
    )  # fmt: skip
    head, tail = leaf_parts(fields)
    edges = body.edges()
    if len(edges) > 1:
        edges = list(dict.fromkeys(edges))
    return Prepared(
        new, stream, node(project, stream), key, fields.event_id, body.kind, body.schema_version, data, occurred, head, tail,
        tuple(NodeEdge(node(project, edge.child), node(project, edge.parent), edge.relation, edge.weight) for edge in edges),
        tuple({edge.child for edge in edges if edge.child != stream}), tuple({bytes.fromhex(ref.blob_id) for ref in body.blobs()}),
    )  # fmt: skip


def stamp(moment: datetime) -> str:
    """ISO 8601 UTC with microseconds and `Z`, as the leaf holds it."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def heads_of(prepared: Sequence[Prepared]) -> dict[str, int]:
    """Stream to node id of all streams appended to, in the order in which they are locked."""
    streams = {item.stream: item.node for item in prepared}
    return dict(sorted(streams.items(), key=lambda pair: pair[1]))


def children_of(project: str, prepared: Sequence[Prepared]) -> dict[str, int]:
    """Name to node id of all further nodes that edges start at, sorted by id."""
    names = {name: node(project, name) for item in prepared for name in item.children}
    return dict(sorted(names.items(), key=lambda pair: pair[1]))


@lru_cache(maxsize=16384)
def node(project: str, name: str) -> int:
    """`ids.node_id`, remembered: the same few parents are named again and again."""
    return ids.node_id(project, name)
