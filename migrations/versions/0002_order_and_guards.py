"""The ordering step, the ordered view, and the triggers that keep the log append-only."""

from typing import Any

from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: Any = None
depends_on: Any = None

APPEND_ONLY = ("ledger", "event", "event_key", "event_order", "order_step", "edge", "blob", "blob_chunk", "blob_use")

GUARD = """
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is append-only: % is refused', TG_TABLE_NAME, TG_OP USING ERRCODE = '55000';
END $$
"""

HEAD_GUARD = """
CREATE FUNCTION refuse_head_regress() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'UPDATE' OR NEW.version < OLD.version
     OR (NEW.ledger_id, NEW.project, NEW.stream) IS DISTINCT FROM (OLD.ledger_id, OLD.project, OLD.stream) THEN
    RAISE EXCEPTION 'stream_head only moves forward: % is refused', TG_OP USING ERRCODE = '55000';
  END IF;
  RETURN NEW;
END $$
"""

# A hole is an id below `high` that was not visible: in flight, or rolled back. Whoever took it had its transaction id before
# the id (appends lock stream_head first), and so before the transaction id that this step takes after looking. Once every
# transaction up to that one has ended, a hole that is still not visible never will be. Foreign long transactions only keep
# holes on the list; they stall nothing.
ORDER_EVENTS = """
CREATE FUNCTION order_events(max_events int DEFAULT 10000, wait boolean DEFAULT false)
RETURNS TABLE (ran boolean, new_position bigint, newly_ordered int, more boolean) LANGUAGE plpgsql AS $$
DECLARE
  last order_step%ROWTYPE;
  seen_ids bigint[]; fresh_count int; snap pg_snapshot; bound bigint; reached bigint;
  kept bigint[]; kept_bounds bigint[]; opened bigint[]; dead_now bigint;
BEGIN
  IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
    RAISE EXCEPTION 'order_events must run in a transaction of its own' USING ERRCODE = '25001';
  END IF;
  IF wait THEN
    PERFORM pg_advisory_xact_lock(74616, 1);
  ELSIF NOT pg_try_advisory_xact_lock(74616, 1) THEN
    RETURN QUERY SELECT false, NULL::bigint, 0, false;
    RETURN;
  END IF;
  PERFORM set_config('synchronous_commit', 'on', true);
  SELECT * INTO last FROM order_step ORDER BY step DESC LIMIT 1;
  IF NOT FOUND THEN
    last.step := 0; last.high := 0; last.position := 0; last.holes := '{}'; last.hole_bounds := '{}'; last.dead := 0;
  END IF;

  WITH fresh AS (SELECT id FROM event WHERE id > last.high ORDER BY id LIMIT max_events),
       late AS (SELECT id FROM event WHERE id = ANY (last.holes))
  SELECT coalesce(array_agg(id ORDER BY id), '{}'), (SELECT count(*) FROM fresh), pg_current_snapshot()
    INTO seen_ids, fresh_count, snap
    FROM (SELECT id FROM fresh UNION ALL SELECT id FROM late) AS seen;
  reached := greatest(last.high, coalesce(seen_ids[array_upper(seen_ids, 1)], 0));

  SELECT coalesce(array_agg(h ORDER BY h), '{}'), coalesce(array_agg(b ORDER BY h), '{}')
    INTO kept, kept_bounds
    FROM unnest(last.holes, last.hole_bounds) AS hole (h, b)
    WHERE h <> ALL (seen_ids) AND b >= pg_snapshot_xmin(snap)::text::bigint;
  dead_now := cardinality(last.holes) - cardinality(kept)
            - (SELECT count(*) FROM unnest(last.holes) AS h WHERE h = ANY (seen_ids));
  IF cardinality(seen_ids) = 0 AND dead_now = 0 THEN
    RETURN QUERY SELECT true, last.position, 0, false;
    RETURN;
  END IF;

  SELECT coalesce(array_agg(h ORDER BY h), '{}') INTO opened FROM (
    SELECT h FROM generate_series(last.high + 1, reached) AS h EXCEPT SELECT unnest(seen_ids)) AS missing (h);
  bound := pg_current_xact_id()::text::bigint;

  INSERT INTO event_order (position, id)
    SELECT last.position + n, id FROM unnest(seen_ids) WITH ORDINALITY AS seen (id, n);
  INSERT INTO order_step (step, high, position, ordered, holes, hole_bounds, dead)
    VALUES (last.step + 1, reached, last.position + cardinality(seen_ids), cardinality(seen_ids),
            kept || opened, kept_bounds || array_fill(bound, ARRAY[cardinality(opened)]), last.dead + dead_now);
  PERFORM pg_notify('tally_ordered', (last.position + cardinality(seen_ids))::text);
  RETURN QUERY SELECT true, last.position + cardinality(seen_ids), cardinality(seen_ids), fresh_count = max_events;
END $$
"""

ORDERED_EVENT = """
CREATE VIEW ordered_event AS
  SELECT o.position, e.ledger_id, e.project, e.event_id, e.stream, e.version, e.kind, e.schema_version, e.canonicaliser, e.occurred_at,
         e.actor_id, e.correlation_id, e.causation_id, e.key, e.body, e.body_hash, e.leaf, e.recorded_at
  FROM event_order AS o JOIN event AS e USING (id)
"""


def upgrade() -> None:
    """Apply this revision."""
    for statement in (GUARD, HEAD_GUARD, ORDER_EVENTS, ORDERED_EVENT):
        op.execute(statement)
    for table in APPEND_ONLY:
        op.execute(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )
    op.execute("CREATE TRIGGER forward_only BEFORE UPDATE OR DELETE ON stream_head FOR EACH ROW EXECUTE FUNCTION refuse_head_regress()")
    op.execute("CREATE TRIGGER no_truncate BEFORE TRUNCATE ON stream_head FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()")


def downgrade() -> None:
    """Undo this revision."""
    op.execute("DROP VIEW ordered_event")
    op.execute("DROP FUNCTION order_events(int, boolean)")
    for table in APPEND_ONLY:
        op.execute(f"DROP TRIGGER append_only ON {table}")
    op.execute("DROP TRIGGER forward_only ON stream_head")
    op.execute("DROP TRIGGER no_truncate ON stream_head")
    op.execute("DROP FUNCTION refuse_head_regress()")
    op.execute("DROP FUNCTION refuse_change()")
