"""The forms of the tables of read models, as SQLModel classes."""

from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, Column, Computed, Index, String
from sqlalchemy.dialects.postgresql import JSONB
from sqlmodel import Field, SQLModel

READ_MODEL = {"read_model": True}
"""Marks a declaration that migrations leave alone: each generation of a read model has a table of this form (ledger/projections/)."""

# The same as ledger.outcome.outcome_of.
_SINCE = "coalesce((verdict_ledger, verdict_position) > (finding_ledger, finding_position), false)"
_OUTCOME = f"""CASE WHEN ended_by IS NULL THEN 'running'
  WHEN superseded THEN 'aborted'
  WHEN attributed = 'environment' THEN 'env_failed'
  WHEN attributed = 'verifier' AND NOT {_SINCE} THEN 'verifier_failed'
  WHEN attributed = 'harness' THEN 'harness_failed'
  WHEN ended_by IN ('cancelled', 'engine_error') THEN 'aborted'
  WHEN ended_by = 'world_error' THEN 'env_failed'
  WHEN ended_by = 'harness_error' THEN 'harness_failed'
  WHEN verdict_status = 'error' THEN 'verifier_failed'
  WHEN passed IS NULL OR attributed = 'undecided' AND NOT {_SINCE} THEN 'unknown'
  WHEN passed THEN 'succeeded'
  WHEN ended_by = 'finished' THEN 'task_failed'
  ELSE 'limit_ended' END"""


class RolloutRow(SQLModel, table=True):
    """Read model: one row a rollout, with its end, the verdict and attribution that count, its outcome; shown once its start is known."""

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
    finding_id: str | None
    finding_ledger: str | None
    finding_position: int | None = Field(default=None, sa_column=Column(BigInteger, nullable=True))
    attributed: str | None
    attributed_fault: str | None
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
