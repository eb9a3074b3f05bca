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
from ledger.limits import LIMITS, Limits, check_event
from ledger.proof import LeafFields, leaf_parts


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


def prepare(ledger_id: str, project: str, new: New, limits: Limits = LIMITS) -> Prepared:
    """The event in the form in which it is hashed and stored.

    Raises:
        InvalidEvent, CanonicalError: it does not fit its schema or its limits.
    """
    occurred, body = new.occurred_at, new.body
    kind, stream, key = body.kind, body.stream(), body.key()
    if occurred.tzinfo is not UTC:
        if occurred.tzinfo is None:
            raise InvalidEvent(f"{kind}: occurred_at {occurred.isoformat()} has no time zone; allowed: aware times")
        occurred = occurred.astimezone(UTC)
    _check_names(kind, stream, key, new, limits)
    data = body.canonical_bytes()
    event_id = _event_id(ledger_id, project, stream, key)
    head, tail = leaf_parts(
        LeafFields(
            ledger_id, event_id, project, stream, 0, kind, body.schema_version, canonical.NAME, stamp(occurred), new.actor_id,
            new.correlation_id, new.causation_id, key, sha256(data).digest(),
        )
    )  # fmt: skip
    stated = body.edges()
    if len(set(stated)) != len(stated):
        stated = list(dict.fromkeys(stated))
    check_event(kind, len(data), len(stated), limits)
    edges = tuple([NodeEdge(node(project, child), node(project, parent), relation, weight) for child, parent, relation, weight in stated])
    return Prepared(
        new, stream, node(project, stream), key, event_id, kind, body.schema_version, data, occurred, head, tail, edges,
        tuple({edge.child for edge in stated if edge.child != stream}), tuple({bytes.fromhex(ref.blob_id) for ref in body.blobs()}),
    )  # fmt: skip


def _check_names(kind: str, stream: str, key: str, new: New, limits: Limits) -> None:
    correlation = new.correlation_id or "-"
    shortest, longest = min(len(stream), len(key), len(new.actor_id)), max(len(stream), len(key), len(new.actor_id), len(correlation))
    if shortest > 0 and longest <= limits.name_length and f"{stream}{key}{new.actor_id}{correlation}".isprintable():
        return
    for what, value in (("stream", stream), ("key", key), ("actor_id", new.actor_id), ("correlation_id", correlation)):
        if not 0 < len(value) <= limits.name_length or not value.isprintable():
            allowed = f"1 to {limits.name_length}, printable"
            raise InvalidEvent(f"{kind}: {what} {value[:60]!r} has {len(value)} characters; allowed: {allowed}")


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


def _event_id(*names: str) -> str:
    """`ids.event_id` through the faster encoder."""
    return ids.uuid_of(sha256(canonical.validated_bytes(["tallystick/event-id/1", *names], integers=False)).digest())


@lru_cache(maxsize=16384)
def node(project: str, name: str) -> int:
    """`ids.node_id`, remembered: the same few parents are named again and again."""
    return ids.node_id(project, name)
