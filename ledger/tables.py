"""All tables, as SQLModel classes: what migrations are checked against. Those of read models are in `view_tables`."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    DateTime,
    Identity,
    Index,
    LargeBinary,
    SmallInteger,
    String,
    UniqueConstraint,
    text,
)  # fmt: skip
from sqlmodel import Field, SQLModel

from ledger import view_tables  # noqa: F401  its tables belong to the same metadata


def _now() -> Any:
    return Column(DateTime(timezone=True), nullable=False, server_default=text("clock_timestamp()"))


class Ledger(SQLModel, table=True):
    """This database's own ledger: one row."""

    __tablename__ = "ledger"
    ledger_id: str = Field(primary_key=True)
    created_at: datetime = Field(sa_column=_now())


class Node(SQLModel, table=True):
    """The name behind a node id, which is the first eight bytes of its digest (`ledger.ids.node_id`), so edges need no look-up.

    Written for every stream and for every edge's child: `<noun>-<id>`, or `call-<id>` for a model call.
    """

    __tablename__ = "node"
    node_id: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    project: str
    name: str


class StreamHead(SQLModel, table=True):
    """The version a stream is at; locked by every append to it. A name has one stream in each ledger that writes to it."""

    __tablename__ = "stream_head"
    __table_args__ = (UniqueConstraint("node_id", "ledger_id", name="stream_head_node"),)
    stream_id: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(always=True, cache=1), primary_key=True))
    node_id: int = Field(sa_column=Column(BigInteger, nullable=False))
    ledger_id: str
    version: int


class Event(SQLModel, table=True):
    """Every event as it was hashed, partitioned by `id`, which is internal: readers use positions."""

    __tablename__ = "event"
    __table_args__ = (Index("event_stream", "stream_id", "version"), {"postgresql_partition_by": "RANGE (id)"})
    id: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    stream_id: int = Field(sa_column=Column(BigInteger, nullable=False))
    version: int
    event_id: UUID
    kind: str
    schema_version: int
    canonicaliser: str
    occurred_at: datetime = Field(sa_column=Column(DateTime(timezone=True), nullable=False))
    actor_id: str
    correlation_id: str | None
    causation_id: UUID | None
    key: str
    body: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    leaf: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    recorded_at: datetime = Field(sa_column=_now())


class EventKey(SQLModel, table=True):
    """Which event took an idempotency key: an event id is derived from ledger, project, stream and key, so it is the key."""

    __tablename__ = "event_key"
    event_id: UUID = Field(primary_key=True)
    id: int = Field(sa_column=Column(BigInteger, nullable=False))


class EventOrder(SQLModel, table=True):
    """The dense position of each ordered event, partitioned by position."""

    __tablename__ = "event_order"
    __table_args__ = (Index("event_order_event", "id"), {"postgresql_partition_by": "RANGE (position)"})
    position: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    id: int = Field(sa_column=Column(BigInteger, nullable=False))


class OrderStep(SQLModel, table=True):
    """State of the ordering step, one row a step: how far ids were read, and which ids below were still missing."""

    __tablename__ = "order_step"
    step: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    high: int = Field(sa_column=Column(BigInteger, nullable=False))
    position: int = Field(sa_column=Column(BigInteger, nullable=False))
    ordered: int
    holes: list[int] = Field(sa_column=Column(ARRAY(BigInteger), nullable=False))
    hole_bounds: list[int] = Field(sa_column=Column(ARRAY(BigInteger), nullable=False))
    dead: int = Field(sa_column=Column(BigInteger, nullable=False))


class EdgeRow(SQLModel, table=True):
    """Lineage: node `child` came from node `parent`, as event `id` states in its `n`-th edge; `weight` is a share of a loss."""

    __tablename__ = "edge"
    __table_args__ = (
        Index("edge_parent", "parent"),
        Index("edge_event", "id", postgresql_using="brin", postgresql_with={"autosummarize": "on"}),
    )
    child: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    id: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    n: int = Field(sa_column=Column(SmallInteger, primary_key=True, autoincrement=False))
    parent: int = Field(sa_column=Column(BigInteger, nullable=False))
    relation: str
    weight: float | None


class LineageSegment(SQLModel, table=True):
    """The edges that events with positions in (since, upto] state, packed: a rebuildable cache of `edge` for counting what came of a node.

    Nodes have numbers in order of segments; `nodes` holds the ids of those first seen here, int64, sorted, and the first of them has the
    number `first_node`. `children` and `parents` hold a number for each edge, int32; `labels` the place in `label_names` of its noun of
    the child and relation, uint8. `weighted` are the places of the edges that have a weight, int32, and `weights` what it is, float64.
    All little-endian.
    """

    __tablename__ = "lineage_segment"
    upto: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    since: int = Field(sa_column=Column(BigInteger, nullable=False))
    first_node: int
    edges: int
    nodes: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    children: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    parents: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    labels: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    label_names: list[str] = Field(sa_column=Column(ARRAY(String), nullable=False))
    weighted: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    weights: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class Tile(SQLModel, table=True):
    """A full tile of the Merkle tree: 256 hashes of one level, 32 bytes each, and the hash they lead to."""

    __tablename__ = "tree_tile"
    level: int = Field(sa_column=Column(SmallInteger, primary_key=True, autoincrement=False))
    index: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    root: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    hashes: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class Checkpoint(SQLModel, table=True):
    """A signed tree head: the root over the first `size` positions, as the note that was published."""

    __tablename__ = "checkpoint"
    origin: str = Field(primary_key=True)
    size: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    root: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    note: str
    sealed_at: datetime = Field(sa_column=_now())


class SourceLog(SQLModel, table=True):
    """A checkpoint of another ledger's log whose events are all here; `key` is the verifier key that signed it."""

    __tablename__ = "source_log"
    ledger_id: str = Field(primary_key=True)
    size: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    origin: str
    key: str
    root: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    note: str
    noted_at: datetime = Field(sa_column=_now())


class SourcePosition(SQLModel, table=True):
    """Where an event that is here lies in the log of another ledger, so that its tree can be derived here."""

    __tablename__ = "source_position"
    __table_args__ = (Index("source_position_event", "id"),)
    ledger_id: str = Field(primary_key=True)
    position: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    id: int = Field(sa_column=Column(BigInteger, nullable=False))


class Subject(SQLModel, table=True):
    """Whose text and tokens are kept: the salt of its commitments and the key of its ciphertext; both are null once they are destroyed."""

    __tablename__ = "subject"
    subject_id: str = Field(primary_key=True)
    salt: bytes | None = Field(sa_column=Column(LargeBinary, nullable=True))
    key: bytes | None = Field(sa_column=Column(LargeBinary, nullable=True))
    destroyed_at: datetime | None = Field(default=None, sa_column=Column(DateTime(timezone=True), nullable=True))


class Blob(SQLModel, table=True):
    """Bytes kept outside event bodies, named by SHA-256(salt ‖ plaintext); `codec` says how the chunks hold them."""

    __tablename__ = "blob"
    __table_args__ = (UniqueConstraint("blob_no", name="blob_number"),)
    blob_id: bytes = Field(sa_column=Column(LargeBinary, primary_key=True))
    blob_no: int = Field(sa_column=Column(BigInteger, nullable=False))
    subject_id: str
    size: int = Field(sa_column=Column(BigInteger, nullable=False))
    chunks: int
    codec: int = Field(sa_column=Column(SmallInteger, nullable=False))
    recorded_at: datetime = Field(sa_column=_now())


class BlobChunk(SQLModel, table=True):
    """Up to 4 MiB of a blob, partitioned by `blob_no`."""

    __tablename__ = "blob_chunk"
    __table_args__ = ({"postgresql_partition_by": "RANGE (blob_no)"},)
    blob_no: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    chunk: int = Field(primary_key=True)
    data: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class BlobUse(SQLModel, table=True):
    """Which event refers to which blob; a blob without a row is an orphan."""

    __tablename__ = "blob_use"
    id: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    blob_no: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))


class TokenLive(SQLModel, table=True):
    """Tokens of a call whose rollout is under way: the prompt after what it shares with its parent call, the sample, its logprobs."""

    __tablename__ = "token_live"
    __table_args__ = (Index("token_live_stream", "stream_id"),)
    event_id: UUID = Field(primary_key=True)
    stream_id: int = Field(sa_column=Column(BigInteger, nullable=False))
    subject_id: str
    parent: UUID | None
    shared: int
    prompt: bytes | None = Field(sa_column=Column(LargeBinary, nullable=True))
    sampled: bytes | None = Field(sa_column=Column(LargeBinary, nullable=True))
    logprobs: bytes | None = Field(sa_column=Column(LargeBinary, nullable=True))


class TokenPack(SQLModel, table=True):
    """Tokens of several calls of one stream, compressed, partitioned by `pack_id`."""

    __tablename__ = "token_pack"
    __table_args__ = (Index("token_pack_stream", "stream_id"), {"postgresql_partition_by": "RANGE (pack_id)"})
    pack_id: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    stream_id: int = Field(sa_column=Column(BigInteger, nullable=False))
    subject_id: str
    calls: int
    data: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class Actor(SQLModel, table=True):
    """The name behind a pseudonym: erasable, and never part of an event."""

    __tablename__ = "actor"
    actor_id: str = Field(primary_key=True)
    name: str
    noted_at: datetime = Field(sa_column=_now())


class ConsumerCursor(SQLModel, table=True):
    """How far a subscriber has come, committed with what it wrote."""

    __tablename__ = "consumer_cursor"
    name: str = Field(primary_key=True)
    position: int = Field(sa_column=Column(BigInteger, nullable=False))


class ProjectionCursor(SQLModel, table=True):
    """How far a generation of a read model has been folded: its name, the digest of its source, and whether the view shows it."""

    __tablename__ = "projection_cursor"
    name: str = Field(primary_key=True)
    source_digest: str = Field(primary_key=True)
    position: int = Field(sa_column=Column(BigInteger, nullable=False))
    shown: bool


METADATA = SQLModel.metadata
APPEND_ONLY: tuple[str, ...] = (
    "ledger", "node", "event", "event_key", "event_order", "order_step", "edge", "blob", "blob_chunk", "blob_use", "tree_tile",
    "checkpoint", "token_pack", "source_log", "source_position",
)  # fmt: skip
PARTITIONED: tuple[str, ...] = ("event", "event_order", "blob_chunk", "token_pack")
READ_MODELS: tuple[str, ...] = tuple(name for name, table in SQLModel.metadata.tables.items() if table.info.get("read_model"))
