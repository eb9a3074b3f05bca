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
PARTITION_WIDTH = 2**24
SEQUENCES = ("event_id_seq", "blob_no_seq", "token_pack_seq")
SEGMENT = ("nodes", "children", "parents", "labels", "weighted", "weights")

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

# A subject is made once and forgets once: salt and key go together, and never come back.
SUBJECT_GUARD = """
CREATE FUNCTION refuse_subject_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'UPDATE' AND NEW.subject_id = OLD.subject_id AND OLD.destroyed_at IS NULL
     AND NEW.salt IS NULL AND NEW.key IS NULL AND NEW.destroyed_at IS NOT NULL THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'subject only forgets its salt and key: % is refused', TG_OP USING ERRCODE = '55000';
END $$
"""
SUBJECT_LIVES = """
CREATE FUNCTION refuse_shredded_subject() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM subject AS s WHERE s.subject_id = NEW.subject_id AND s.destroyed_at IS NOT NULL) THEN
    RAISE EXCEPTION 'subject % was shredded; nothing new is stored under it', quote_literal(NEW.subject_id) USING ERRCODE = 'TY006';
  END IF;
  RETURN NEW;
END $$
"""
# Keys go only after the log says that they do. The name behind a pseudonym is the subject's own and goes with them.
DESTROY_SUBJECT = """
CREATE FUNCTION destroy_subject(of_subject text, of_event uuid, OUT salts int, OUT names int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM FROM event_key AS k JOIN event AS e USING (id) WHERE k.event_id = of_event AND e.kind = 'SubjectShredded'
    AND convert_from(e.body, 'UTF8')::jsonb ->> 'subject_id' = of_subject;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'no SubjectShredded event % names subject %', of_event, quote_literal(of_subject) USING ERRCODE = 'TY004';
  END IF;
  UPDATE subject SET salt = NULL, key = NULL, destroyed_at = clock_timestamp() WHERE subject_id = of_subject AND destroyed_at IS NULL;
  GET DIAGNOSTICS salts = ROW_COUNT;
  DELETE FROM actor WHERE actor_id = regexp_replace(of_subject, '^actor:', '');
  GET DIAGNOSTICS names = ROW_COUNT;
END $$
"""

# The log grows by partitions of one width; new ones are attached, half a width ahead, under a lock that neither readers nor writers
# wait for. The guards are made again on each partition: a statement that names the partition would pass those of its parent by.
WIDTH = """
CREATE FUNCTION partition_width() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT {width}::bigint $$
"""
EXTEND = """
CREATE FUNCTION extend_partitions() RETURNS int LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  parent text; part text; reached bigint; next_part bigint; made int := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(74616, 4);
  FOR parent, reached IN
    SELECT 'event', last_value FROM event_id_seq
    UNION ALL SELECT 'blob_chunk', last_value FROM blob_no_seq
    UNION ALL SELECT 'token_pack', last_value FROM token_pack_seq
    UNION ALL SELECT 'event_order', coalesce((SELECT position FROM order_step ORDER BY step DESC LIMIT 1), 0)
  LOOP
    SELECT coalesce(max(substring(c.relname FROM '_p(\\d+)$')::bigint) + 1, 0) INTO next_part
      FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid WHERE i.inhparent = parent::regclass;
    WHILE next_part * partition_width() <= reached + partition_width() / 2 LOOP
      part := parent || '_p' || next_part;
      EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING STORAGE)', part, parent);
      EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
                     parent, part, next_part * partition_width(), (next_part + 1) * partition_width());
      EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON %I FOR EACH STATEMENT'
                     ' EXECUTE FUNCTION refuse_change()', part);
      next_part := next_part + 1;
      made := made + 1;
    END LOOP;
  END LOOP;
  RETURN made;
END $$
"""

# Whoever takes a number calls this before writing a row under it, and again from the number that it returns on. Looking costs a
# look-up of a name; while there is room, only one transaction extends and nobody waits for it.
MAKE_ROOM = """
CREATE FUNCTION make_room(parent text, reached bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  width bigint := partition_width();
BEGIN
  IF to_regclass(parent || '_p' || (reached + width / 2) / width) IS NULL THEN
    IF to_regclass(parent || '_p' || reached / width) IS NOT NULL AND NOT pg_try_advisory_xact_lock(74616, 4) THEN
      RETURN reached + 1;
    END IF;
    PERFORM extend_partitions();
  END IF;
  RETURN ((reached + width / 2) / width + 1) * width - width / 2;
END $$
"""
NEXT_BLOB_NO = """
CREATE FUNCTION next_blob_no() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  number bigint := nextval('blob_no_seq');
BEGIN
  PERFORM make_room('blob_chunk', number);
  RETURN number;
END $$
"""

# A hole is an id below `high` that was not visible: in flight, or rolled back. Whoever took it had its transaction id before
# the id (appends lock stream_head first), and so before the transaction id that this step takes after looking. Once every
# transaction up to that one has ended, a hole that is still not visible never will be. Foreign long transactions only keep
# holes on the list; they stall nothing.
ORDER_EVENTS = """
CREATE FUNCTION order_events(max_events int DEFAULT 10000, wait boolean DEFAULT false)
RETURNS TABLE (ran boolean, new_position bigint, newly_ordered int, more boolean) LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
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
  INSERT INTO order_step (step, high, position, ordered, holes, hole_bounds, dead)
    VALUES (last.step + 1, reached, position_now, cardinality(seen_ids),
            kept || opened, kept_bounds || array_fill(bound, ARRAY[cardinality(opened)]), last.dead + dead_now);
  PERFORM make_room('event_order', position_now);
  INSERT INTO event_order (position, id)
    SELECT last.position + n, id FROM unnest(seen_ids) WITH ORDINALITY AS seen (id, n);
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
    for table, column in (("blob_chunk", "data"), ("token_pack", "data"), ("token_live", "prompt"), ("tree_tile", "hashes"),
                          *(("lineage_segment", name) for name in SEGMENT)):  # fmt: skip
        # These bytes are compressed, encrypted or random: trying to compress them again only costs time.
        op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL")
    config = op.get_context().config
    width = None if config is None else config.attributes.get("partition_width")
    op.execute(WIDTH.format(width=int(width or PARTITION_WIDTH)))
    for statement in (GUARD, HEAD_GUARD, EXTEND, MAKE_ROOM, NEXT_BLOB_NO, ORDER_EVENTS, NODE_OF, ORDERED_EVENT, RECORDED_EVENT):
        op.execute(statement)
    for statement in (SUBJECT_GUARD, SUBJECT_LIVES, DESTROY_SUBJECT):
        op.execute(statement)
    for table in APPEND_ONLY:
        op.execute(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )
    op.execute("CREATE TRIGGER forward_only BEFORE UPDATE OR DELETE ON stream_head FOR EACH ROW EXECUTE FUNCTION refuse_head_regress()")
    op.execute("CREATE TRIGGER no_truncate BEFORE TRUNCATE ON stream_head FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()")
    op.execute("CREATE TRIGGER forgets_only BEFORE UPDATE OR DELETE ON subject FOR EACH ROW EXECUTE FUNCTION refuse_subject_change()")
    op.execute("CREATE TRIGGER no_truncate BEFORE TRUNCATE ON subject FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()")
    for table in ("blob", "token_live"):
        op.execute(
            f"CREATE TRIGGER subject_lives BEFORE INSERT ON {table} FOR EACH ROW WHEN (NEW.subject_id <> 'public')"
            " EXECUTE FUNCTION refuse_shredded_subject()"
        )
    op.execute("SELECT extend_partitions()")


def downgrade() -> None:
    """Undo this revision."""
    op.execute("DROP VIEW recorded_event")
    op.execute("DROP VIEW ordered_event")
    op.execute("DROP FUNCTION node_of(text, text)")
    op.execute("DROP FUNCTION order_events(int, boolean)")
    op.execute(DROP_PARTITIONS)
    for function in ("next_blob_no()", "make_room(text, bigint)", "extend_partitions()", "partition_width()"):
        op.execute(f"DROP FUNCTION {function}")
    for table in APPEND_ONLY:
        op.execute(f"DROP TRIGGER append_only ON {table}")
    op.execute("DROP TRIGGER forward_only ON stream_head")
    op.execute("DROP TRIGGER no_truncate ON stream_head")
    for table in ("blob", "token_live"):
        op.execute(f"DROP TRIGGER subject_lives ON {table}")
    op.execute("DROP TRIGGER forgets_only ON subject")
    op.execute("DROP TRIGGER no_truncate ON subject")
    for function in ("destroy_subject(text, uuid)", "refuse_shredded_subject()", "refuse_subject_change()"):
        op.execute(f"DROP FUNCTION {function}")
    op.execute("DROP FUNCTION refuse_head_regress()")
    op.execute("DROP FUNCTION refuse_change()")
    for name in SEQUENCES:
        op.execute(f"DROP SEQUENCE {name}")
