"""All tables, as SQLModel classes: what migrations are checked against."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    Computed,
    DateTime,
    Identity,
    Index,
    LargeBinary,
    SmallInteger,
    String,
    UniqueConstraint,
    text,
)  # fmt: skip
from sqlalchemy.dialects.postgresql import JSONB
from sqlmodel import Field, SQLModel


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


READ_MODEL = {"read_model": True}
"""Marks a declaration that migrations leave alone: each generation of a read model has a table of this form (ledger/projections/)."""

# The same as ledger.outcome.outcome_of.
_OUTCOME = """CASE WHEN ended_by IS NULL THEN 'running'
  WHEN superseded OR ended_by IN ('cancelled', 'engine_error') THEN 'aborted'
  WHEN ended_by = 'world_error' THEN 'env_failed'
  WHEN ended_by = 'harness_error' THEN 'harness_failed'
  WHEN verdict_status = 'error' THEN 'verifier_failed'
  WHEN passed IS NULL THEN 'unknown'
  WHEN passed THEN 'succeeded'
  WHEN ended_by = 'finished' THEN 'task_failed'
  ELSE 'limit_ended' END"""


class RolloutRow(SQLModel, table=True):
    """Read model: one row a rollout, with its end, the verdict that counts and its outcome; not shown before its start is known."""

    __tablename__ = "rollout_view"
    __table_args__ = (Index("rollout_view_group", "project", "group_id", "slot"), {"info": READ_MODEL})
    project: str = Field(primary_key=True)
    rollout_id: str = Field(primary_key=True)
    group_id: str | None
    bundle_id: str | None
    slot: int | None
    attempt: int | None
    rollout_kind: str | None
    participant: str | None
    model_version: str | None
    started_event: UUID | None
    started_position: int | None = Field(default=None, sa_column=Column(BigInteger, nullable=True))
    ended_event: UUID | None
    ended_position: int | None = Field(default=None, sa_column=Column(BigInteger, nullable=True))
    ended_by: str | None
    boundary: str | None
    reason: str | None
    superseded: bool = Field(default=False)
    model_calls: int = Field(default=0)
    tool_calls: int = Field(default=0)
    sampled_tokens: int = Field(default=0, sa_column=Column(BigInteger, nullable=False))
    verdict_id: str | None
    verdict_rank: int | None
    verdict_ledger: str | None
    verdict_position: int | None = Field(default=None, sa_column=Column(BigInteger, nullable=True))
    verdict_status: str | None
    passed: bool | None
    outcome: str | None = Field(default=None, sa_column=Column(String, Computed(_OUTCOME, persisted=True), nullable=True))


class VerdictRow(SQLModel, table=True):
    """Read model: one row a verdict, a person's decision included."""

    __tablename__ = "verdict_view"
    __table_args__ = (Index("verdict_view_rollout", "project", "rollout_id"), {"info": READ_MODEL})
    project: str = Field(primary_key=True)
    verdict_id: str = Field(primary_key=True)
    rollout_id: str
    verifier_id: str | None
    verifier_kind: str
    role: str
    status: str
    passed: bool | None
    conditions: Any = Field(sa_column=Column(JSONB, nullable=False))
    side_effect_count: int
    event_id: UUID
    position: int = Field(sa_column=Column(BigInteger, nullable=False))


class RewardRow(SQLModel, table=True):
    """Read model: one row a reward."""

    __tablename__ = "reward_view"
    __table_args__ = (Index("reward_view_rollout", "project", "rollout_id"), {"info": READ_MODEL})
    project: str = Field(primary_key=True)
    reward_id: str = Field(primary_key=True)
    rollout_id: str
    rule: str
    value: float | None
    reason: str
    verdict_ids: Any = Field(sa_column=Column(JSONB, nullable=False))
    event_id: UUID
    position: int = Field(sa_column=Column(BigInteger, nullable=False))


class BundleRow(SQLModel, table=True):
    """Read model: one row a bundle."""

    __tablename__ = "bundle_view"
    __table_args__ = ({"info": READ_MODEL},)
    project: str = Field(primary_key=True)
    bundle_id: str = Field(primary_key=True)
    name: str
    world: str
    split: str
    proposer: str
    verifier_id: str
    harness_id: str
    event_id: UUID
    position: int = Field(sa_column=Column(BigInteger, nullable=False))


class GroupRow(SQLModel, table=True):
    """Read model: one row a group, so that coverage can be counted against what was expected."""

    __tablename__ = "group_view"
    __table_args__ = ({"info": READ_MODEL},)
    project: str = Field(primary_key=True)
    group_id: str = Field(primary_key=True)
    bundle_id: str
    size: int
    experiment_id: str
    run_id: str
    round: int
    policy: str
    rollout_kind: str
    event_id: UUID
    position: int = Field(sa_column=Column(BigInteger, nullable=False))


class CallRow(SQLModel, table=True):
    """Read model: one row a model call; `status` is null while only the intent is there, `model` where the intent is missing."""

    __tablename__ = "call_view"
    __table_args__ = (Index("call_view_rollout", "project", "rollout_id", "index"), {"info": READ_MODEL})
    project: str = Field(primary_key=True)
    call_id: str = Field(primary_key=True)
    rollout_id: str | None
    index: int
    participant: str
    role: str
    model: str | None
    request_digest: str | None
    retry_of: str | None
    status: str | None
    error_source: str | None
    finish_reason: str | None
    prompt_tokens: int | None
    sampled_tokens: int | None
    logprobs_mode: str | None
    dispatched_event: UUID | None
    dispatched_position: int | None = Field(default=None, sa_column=Column(BigInteger, nullable=True))
    called_event: UUID | None
    called_position: int | None = Field(default=None, sa_column=Column(BigInteger, nullable=True))


METADATA = SQLModel.metadata
APPEND_ONLY: tuple[str, ...] = (
    "ledger", "node", "event", "event_key", "event_order", "order_step", "edge", "blob", "blob_chunk", "blob_use", "tree_tile",
    "checkpoint", "token_pack"
)  # fmt: skip
PARTITIONED: tuple[str, ...] = ("event", "event_order", "blob_chunk", "token_pack")
READ_MODELS: tuple[str, ...] = tuple(name for name, table in SQLModel.metadata.tables.items() if table.info.get("read_model"))
