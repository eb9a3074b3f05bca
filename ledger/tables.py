"""All tables, as SQLModel classes: what migrations are checked against."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, BigInteger, Column, DateTime, Identity, Index, LargeBinary, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlmodel import Field, SQLModel


def _now() -> Any:
    return Column(DateTime(timezone=True), nullable=False, server_default=text("clock_timestamp()"))


class Ledger(SQLModel, table=True):
    """This database's own ledger: one row."""

    __tablename__ = "ledger"
    ledger_id: str = Field(primary_key=True)
    created_at: datetime = Field(sa_column=_now())


class Event(SQLModel, table=True):
    """Every event as it was hashed. `id` is internal: readers use positions."""

    __tablename__ = "event"
    __table_args__ = (
        UniqueConstraint("ledger_id", "project", "stream", "version", name="event_stream_version"),
        UniqueConstraint("event_id", name="event_event_id"),
    )
    id: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(always=True, cache=1), primary_key=True))
    ledger_id: str
    project: str
    event_id: UUID
    stream: str
    version: int
    kind: str
    schema_version: int
    canonicaliser: str
    occurred_at: datetime = Field(sa_column=Column(DateTime(timezone=True), nullable=False))
    actor_id: str
    correlation_id: str | None
    causation_id: UUID | None
    key: str
    body: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    body_hash: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    leaf: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    recorded_at: datetime = Field(sa_column=_now())


class StreamHead(SQLModel, table=True):
    """The version a stream is at; locked by every append to it."""

    __tablename__ = "stream_head"
    ledger_id: str = Field(primary_key=True)
    project: str = Field(primary_key=True)
    stream: str = Field(primary_key=True)
    version: int


class EventKey(SQLModel, table=True):
    """Which event took an idempotency key, and with what content."""

    __tablename__ = "event_key"
    ledger_id: str = Field(primary_key=True)
    project: str = Field(primary_key=True)
    stream: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    event_id: UUID
    version: int
    kind: str
    schema_version: int
    body_hash: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class EventOrder(SQLModel, table=True):
    """The dense position of each ordered event."""

    __tablename__ = "event_order"
    position: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    id: int = Field(sa_column=Column(BigInteger, nullable=False, unique=True))


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
    """Lineage: `child` came from `parent`."""

    __tablename__ = "edge"
    __table_args__ = (Index("edge_parent", "project", "parent", "relation"),)
    project: str = Field(primary_key=True)
    child: str = Field(primary_key=True)
    parent: str = Field(primary_key=True)
    relation: str = Field(primary_key=True)
    event_id: UUID


class Subject(SQLModel, table=True):
    """Whose text and tokens a blob holds; without its salt a commitment says nothing about the content."""

    __tablename__ = "subject"
    subject_id: str = Field(primary_key=True)
    salt: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class Blob(SQLModel, table=True):
    """Bytes kept outside event bodies, named by SHA-256(salt ‖ plaintext)."""

    __tablename__ = "blob"
    blob_id: bytes = Field(sa_column=Column(LargeBinary, primary_key=True))
    subject_id: str
    size: int = Field(sa_column=Column(BigInteger, nullable=False))
    chunks: int
    recorded_at: datetime = Field(sa_column=_now())


class BlobChunk(SQLModel, table=True):
    """Up to 4 MiB of a blob."""

    __tablename__ = "blob_chunk"
    blob_id: bytes = Field(sa_column=Column(LargeBinary, primary_key=True))
    chunk: int = Field(primary_key=True)
    data: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class BlobUse(SQLModel, table=True):
    """Which event refers to which blob; a blob without a row is an orphan."""

    __tablename__ = "blob_use"
    __table_args__ = (Index("blob_use_event", "event_id"),)
    blob_id: bytes = Field(sa_column=Column(LargeBinary, primary_key=True))
    event_id: UUID = Field(primary_key=True)


class Actor(SQLModel, table=True):
    """The name behind a pseudonym: erasable, and never part of an event."""

    __tablename__ = "actor"
    actor_id: str = Field(primary_key=True)
    name: str
    noted_at: datetime = Field(sa_column=_now())


class ProjectionCursor(SQLModel, table=True):
    """How far a read model has been folded, and by which source."""

    __tablename__ = "projection_cursor"
    name: str = Field(primary_key=True)
    source_digest: str
    position: int = Field(sa_column=Column(BigInteger, nullable=False))


class RolloutRow(SQLModel, table=True):
    """Read model: one row a rollout, with its end, the verdict that counts and its outcome."""

    __tablename__ = "rollout_view"
    __table_args__ = (Index("rollout_view_group", "project", "group_id", "slot"),)
    project: str = Field(primary_key=True)
    rollout_id: str = Field(primary_key=True)
    group_id: str
    bundle_id: str
    slot: int
    attempt: int
    rollout_kind: str
    participant: str | None
    model_version: str | None
    started_position: int = Field(sa_column=Column(BigInteger, nullable=False))
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
    verdict_position: int | None = Field(default=None, sa_column=Column(BigInteger, nullable=True))
    verdict_status: str | None
    passed: bool | None
    outcome: str


class VerdictRow(SQLModel, table=True):
    """Read model: one row a verdict, a person's decision included."""

    __tablename__ = "verdict_view"
    __table_args__ = (Index("verdict_view_rollout", "project", "rollout_id"),)
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
    position: int = Field(sa_column=Column(BigInteger, nullable=False))


class RewardRow(SQLModel, table=True):
    """Read model: one row a reward."""

    __tablename__ = "reward_view"
    __table_args__ = (Index("reward_view_rollout", "project", "rollout_id"),)
    project: str = Field(primary_key=True)
    reward_id: str = Field(primary_key=True)
    rollout_id: str
    rule: str
    value: float | None
    reason: str
    verdict_ids: Any = Field(sa_column=Column(JSONB, nullable=False))
    position: int = Field(sa_column=Column(BigInteger, nullable=False))


class BundleRow(SQLModel, table=True):
    """Read model: one row a bundle."""

    __tablename__ = "bundle_view"
    project: str = Field(primary_key=True)
    bundle_id: str = Field(primary_key=True)
    name: str
    world: str
    split: str
    proposer: str
    verifier_id: str
    harness_id: str
    position: int = Field(sa_column=Column(BigInteger, nullable=False))


class GroupRow(SQLModel, table=True):
    """Read model: one row a group, so that coverage can be counted against what was expected."""

    __tablename__ = "group_view"
    project: str = Field(primary_key=True)
    group_id: str = Field(primary_key=True)
    bundle_id: str
    size: int
    experiment_id: str
    run_id: str
    round: int
    policy: str
    rollout_kind: str
    position: int = Field(sa_column=Column(BigInteger, nullable=False))


class CallRow(SQLModel, table=True):
    """Read model: one row a model call; `status` is null while only the intent is there, `model` where the intent is missing."""

    __tablename__ = "call_view"
    __table_args__ = (Index("call_view_rollout", "project", "rollout_id", "index"),)
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
    dispatched_position: int | None = Field(default=None, sa_column=Column(BigInteger, nullable=True))
    called_position: int | None = Field(default=None, sa_column=Column(BigInteger, nullable=True))


READ_MODELS: tuple[type[SQLModel], ...] = (RolloutRow, VerdictRow, RewardRow, BundleRow, GroupRow, CallRow)
APPEND_ONLY: tuple[str, ...] = (
    "ledger", "event", "event_key", "event_order", "order_step", "edge", "blob", "blob_chunk", "blob_use"
)  # fmt: skip
