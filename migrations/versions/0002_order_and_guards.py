"""Partitions, the ordering step, the views that readers use, and the triggers that keep the log append-only."""

from typing import Any

from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: Any = None
depends_on: Any = None

APPEND_ONLY = (
    "ledger", "node", "event", "event_key", "event_order", "order_step", "edge", "blob", "blob_chunk", "blob_use", "tree_tile",
    "checkpoint", "token_pack",
)  # fmt: skip
SEQUENCES = ("event_id_seq", "blob_no_seq", "token_pack_seq")

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
     OR (NEW.stream_id, NEW.node_id, NEW.ledger_id) IS DISTINCT FROM (OLD.stream_id, OLD.node_id, OLD.ledger_id) THEN
    RAISE EXCEPTION 'stream_head only moves forward: % is refused', TG_OP USING ERRCODE = '55000';
  END IF;
  RETURN NEW;
END $$
"""

# The log grows by partitions of one width; a new one is attached, half a width ahead, under a lock that neither readers nor writers
# wait for. The guards are made again on each partition: a statement that names the partition would pass those of its parent by.
EXTEND = """
CREATE FUNCTION extend_partitions(width bigint DEFAULT NULL) RETURNS int LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
  parent text; reached bigint; parts int; upper bigint; wide bigint; made int := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(74616, 4);
  FOR parent, reached IN
    SELECT 'event', last_value FROM event_id_seq
    UNION ALL SELECT 'blob_chunk', last_value FROM blob_no_seq
    UNION ALL SELECT 'token_pack', last_value FROM token_pack_seq
    UNION ALL SELECT 'event_order', coalesce((SELECT position FROM order_step ORDER BY step DESC LIMIT 1), 0)
  LOOP
    SELECT count(*), coalesce(max(substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \\(''(\\d+)''\\)')::bigint), 0) INTO parts, upper
      FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid WHERE i.inhparent = parent::regclass;
    wide := CASE parts WHEN 0 THEN coalesce(width, 16777216) ELSE upper / parts END;
    WHILE parts = 0 OR reached >= upper - wide / 2 LOOP
      EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING STORAGE)', parent || '_p' || parts, parent);
      EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
                     parent, parent || '_p' || parts, upper, upper + wide);
      EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON %I FOR EACH STATEMENT'
                     ' EXECUTE FUNCTION refuse_change()', parent || '_p' || parts);
      parts := parts + 1;
      upper := upper + wide;
      made := made + 1;
    END LOOP;
  END LOOP;
  RETURN made;
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
  seen_ids bigint[]; fresh_count int; snap pg_snapshot; bound bigint; reached bigint; position_now bigint;
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
  position_now := last.position + cardinality(seen_ids);
  IF position_now / 1048576 > last.position / 1048576 OR reached / 1048576 > last.high / 1048576 THEN
    PERFORM extend_partitions();
  END IF;

  INSERT INTO event_order (position, id)
    SELECT last.position + n, id FROM unnest(seen_ids) WITH ORDINALITY AS seen (id, n);
  INSERT INTO order_step (step, high, position, ordered, holes, hole_bounds, dead)
    VALUES (last.step + 1, reached, position_now, cardinality(seen_ids),
            kept || opened, kept_bounds || array_fill(bound, ARRAY[cardinality(opened)]), last.dead + dead_now);
  PERFORM pg_notify('tally_ordered', position_now::text);
  RETURN QUERY SELECT true, position_now, cardinality(seen_ids), fresh_count = max_events;
END $$
"""

# The id that ledger/ids.py derives for a name, for queries that build names.
NODE_OF = """
CREATE FUNCTION node_of(project text, name text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT ('x' || encode(substr(sha256(convert_to('tallystick/node/1', 'UTF8') || int4send(octet_length(convert_to(project, 'UTF8')))
    || convert_to(project, 'UTF8') || convert_to(name, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint
$$
"""

_EVENT = """h.ledger_id, n.project, e.event_id, n.name AS stream, e.version, e.kind, e.schema_version, e.canonicaliser, e.occurred_at,
         e.actor_id, e.correlation_id, e.causation_id, e.key, e.body, sha256(e.body) AS body_hash, e.leaf, e.recorded_at,
         e.id, e.stream_id, h.node_id"""
_NAMED = "JOIN stream_head AS h USING (stream_id) JOIN node AS n USING (node_id)"
ORDERED_EVENT = f"""
CREATE VIEW ordered_event AS
  SELECT o.position, {_EVENT}
  FROM event_order AS o JOIN event AS e USING (id) {_NAMED}
"""
RECORDED_EVENT = f"""
CREATE VIEW recorded_event AS
  SELECT o.position, {_EVENT}
  FROM event AS e {_NAMED} LEFT JOIN event_order AS o USING (id)
"""
DROP_PARTITIONS = """
DO $$ DECLARE part regclass; BEGIN
  FOR part IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent IN ('event'::regclass, 'event_order'::regclass,
    'blob_chunk'::regclass, 'token_pack'::regclass) LOOP
    EXECUTE format('DROP TABLE %s', part);
  END LOOP;
END $$
"""


def upgrade() -> None:
    """Apply this revision."""
    for name in SEQUENCES:
        op.execute(f"CREATE SEQUENCE {name} AS bigint CACHE 1")
    for table, column in (("blob_chunk", "data"), ("token_pack", "data"), ("token_live", "prompt"), ("tree_tile", "hashes")):
        # These bytes are compressed, encrypted or random: trying to compress them again only costs time.
        op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL")
    for statement in (GUARD, HEAD_GUARD, EXTEND, ORDER_EVENTS, NODE_OF, ORDERED_EVENT, RECORDED_EVENT):
        op.execute(statement)
    for table in APPEND_ONLY:
        op.execute(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )
    op.execute("CREATE TRIGGER forward_only BEFORE UPDATE OR DELETE ON stream_head FOR EACH ROW EXECUTE FUNCTION refuse_head_regress()")
    op.execute("CREATE TRIGGER no_truncate BEFORE TRUNCATE ON stream_head FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()")
    config = op.get_context().config
    width = None if config is None else config.attributes.get("partition_width")
    op.execute(f"SELECT extend_partitions({'NULL' if width is None else int(width)})")


def downgrade() -> None:
    """Undo this revision."""
    op.execute("DROP VIEW recorded_event")
    op.execute("DROP VIEW ordered_event")
    op.execute("DROP FUNCTION node_of(text, text)")
    op.execute("DROP FUNCTION order_events(int, boolean)")
    op.execute(DROP_PARTITIONS)
    op.execute("DROP FUNCTION extend_partitions(bigint)")
    for table in APPEND_ONLY:
        op.execute(f"DROP TRIGGER append_only ON {table}")
    op.execute("DROP TRIGGER forward_only ON stream_head")
    op.execute("DROP TRIGGER no_truncate ON stream_head")
    op.execute("DROP FUNCTION refuse_head_regress()")
    op.execute("DROP FUNCTION refuse_change()")
    for name in SEQUENCES:
        op.execute(f"DROP SEQUENCE {name}")
