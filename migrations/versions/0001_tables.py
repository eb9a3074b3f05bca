"""All tables of the log, and the cursors of its readers."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
down_revision: str | None = None
branch_labels: Any = None
depends_on: Any = None


def upgrade() -> None:
    """Apply this revision."""
    op.create_table(
        "actor",
        sa.Column("actor_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("noted_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.PrimaryKeyConstraint("actor_id"),
    )
    op.create_table(
        "blob",
        sa.Column("blob_id", sa.LargeBinary(), nullable=False),
        sa.Column("blob_no", sa.BigInteger(), nullable=False),
        sa.Column("subject_id", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("chunks", sa.Integer(), nullable=False),
        sa.Column("codec", sa.SmallInteger(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.PrimaryKeyConstraint("blob_id"),
        sa.UniqueConstraint("blob_no", name="blob_number"),
    )
    op.create_table(
        "blob_chunk",
        sa.Column("blob_no", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("chunk", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("blob_no", "chunk"),
        postgresql_partition_by="RANGE (blob_no)",
    )
    op.create_table(
        "blob_use",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("blob_no", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("id", "blob_no"),
    )
    op.create_table(
        "checkpoint",
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("root", sa.LargeBinary(), nullable=False),
        sa.Column("note", sa.String(), nullable=False),
        sa.Column("sealed_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.PrimaryKeyConstraint("origin", "size"),
    )
    op.create_table(
        "consumer_cursor",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "edge",
        sa.Column("child", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("n", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("parent", sa.BigInteger(), nullable=False),
        sa.Column("relation", sa.String(), nullable=False),
        sa.Column("weight", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("child", "id", "n"),
    )
    op.create_index("edge_parent", "edge", ["parent"], unique=False)
    op.create_index("edge_event", "edge", ["id"], unique=False, postgresql_using="brin", postgresql_with={"autosummarize": "on"})
    op.create_table(
        "event",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("schema_version", sa.Integer(), nullable=False),
        sa.Column("canonicaliser", sa.String(), nullable=False),
        sa.Column("occurred_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor_id", sa.String(), nullable=False),
        sa.Column("correlation_id", sa.String(), nullable=True),
        sa.Column("causation_id", sa.Uuid(), nullable=True),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("leaf", sa.LargeBinary(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        postgresql_partition_by="RANGE (id)",
    )
    op.create_index("event_stream", "event", ["stream_id", "version"], unique=False)
    op.create_table(
        "event_key",
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("event_id"),
    )
    op.create_table(
        "event_order",
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("position"),
        postgresql_partition_by="RANGE (position)",
    )
    op.create_index("event_order_event", "event_order", ["id"], unique=False)
    op.create_table(
        "ledger",
        sa.Column("ledger_id", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.PrimaryKeyConstraint("ledger_id"),
    )
    op.create_table(
        "lineage_segment",
        sa.Column("upto", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("first_node", sa.Integer(), nullable=False),
        sa.Column("edges", sa.Integer(), nullable=False),
        sa.Column("nodes", sa.LargeBinary(), nullable=False),
        sa.Column("children", sa.LargeBinary(), nullable=False),
        sa.Column("parents", sa.LargeBinary(), nullable=False),
        sa.Column("labels", sa.LargeBinary(), nullable=False),
        sa.Column("label_names", sa.ARRAY(sa.String()), nullable=False),
        sa.Column("weighted", sa.LargeBinary(), nullable=False),
        sa.Column("weights", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("upto"),
    )
    op.create_table(
        "node",
        sa.Column("node_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("node_id"),
    )
    op.create_table(
        "order_step",
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("high", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("ordered", sa.Integer(), nullable=False),
        sa.Column("holes", sa.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("hole_bounds", sa.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("dead", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("step"),
    )
    op.create_table(
        "projection_cursor",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("source_digest", sa.String(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("shown", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("name", "source_digest"),
    )
    op.create_table(
        "stream_head",
        sa.Column("stream_id", sa.BigInteger(), sa.Identity(always=True, cache=1), nullable=False),
        sa.Column("node_id", sa.BigInteger(), nullable=False),
        sa.Column("ledger_id", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("stream_id"),
        sa.UniqueConstraint("node_id", "ledger_id", name="stream_head_node"),
    )
    op.create_table(
        "subject",
        sa.Column("subject_id", sa.String(), nullable=False),
        sa.Column("salt", sa.LargeBinary(), nullable=True),
        sa.Column("key", sa.LargeBinary(), nullable=True),
        sa.Column("destroyed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("subject_id"),
    )
    op.create_table(
        "token_live",
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("subject_id", sa.String(), nullable=False),
        sa.Column("parent", sa.Uuid(), nullable=True),
        sa.Column("shared", sa.Integer(), nullable=False),
        sa.Column("prompt", sa.LargeBinary(), nullable=True),
        sa.Column("sampled", sa.LargeBinary(), nullable=True),
        sa.Column("logprobs", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("event_id"),
    )
    op.create_index("token_live_stream", "token_live", ["stream_id"], unique=False)
    op.create_table(
        "token_pack",
        sa.Column("pack_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("stream_id", sa.BigInteger(), nullable=False),
        sa.Column("subject_id", sa.String(), nullable=False),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("pack_id"),
        postgresql_partition_by="RANGE (pack_id)",
    )
    op.create_index("token_pack_stream", "token_pack", ["stream_id"], unique=False)
    op.create_table(
        "tree_tile",
        sa.Column("level", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("index", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("root", sa.LargeBinary(), nullable=False),
        sa.Column("hashes", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("level", "index"),
    )


def downgrade() -> None:
    """Undo this revision."""
    op.drop_table("tree_tile")
    op.drop_index("token_pack_stream", table_name="token_pack")
    op.drop_table("token_pack")
    op.drop_index("token_live_stream", table_name="token_live")
    op.drop_table("token_live")
    op.drop_table("subject")
    op.drop_table("stream_head")
    op.drop_table("projection_cursor")
    op.drop_table("order_step")
    op.drop_table("node")
    op.drop_table("lineage_segment")
    op.drop_table("ledger")
    op.drop_index("event_order_event", table_name="event_order")
    op.drop_table("event_order")
    op.drop_table("event_key")
    op.drop_index("event_stream", table_name="event")
    op.drop_table("event")
    op.drop_index("edge_event", table_name="edge")
    op.drop_index("edge_parent", table_name="edge")
    op.drop_table("edge")
    op.drop_table("consumer_cursor")
    op.drop_table("checkpoint")
    op.drop_table("blob_use")
    op.drop_table("blob_chunk")
    op.drop_table("blob")
    op.drop_table("actor")
