"""New streams of a bulk append get their heads at the version that they will have, instead of at 0 and then once more."""

from typing import Any

from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: Any = None
depends_on: Any = None

OLD = "begin_bulk(text, text, text[], bigint[], text[], bigint[], uuid[])"
NEW = "begin_bulk(text, text, text[], bigint[], int[], text[], bigint[], uuid[])"

# A stream without a head can hold none of these events, so all of them are new and its head can be made as they will leave it. Where
# another transaction made the head meanwhile, it is locked like the ones that were there. Nodes come sorted, heads are made before others
# are locked, and both before any event id is taken, as in lock_heads.
BEGIN_BULK = """
CREATE FUNCTION begin_bulk(
  of_ledger text, of_project text, head_names text[], head_nodes bigint[], head_counts int[],
  child_names text[], child_nodes bigint[], event_ids uuid[],
  OUT stream_ids bigint[], OUT versions int[], OUT made boolean[], OUT taken uuid[], OUT fresh_ids bigint[])
LANGUAGE plpgsql AS $$
DECLARE
  foreign_name text; foreign_node bigint; made_nodes bigint[]; made_ids bigint[]; known record; name_taken text;
BEGIN
  FOR foreign_name, foreign_node IN
    SELECT u.name, u.node_id FROM unnest(head_nodes, head_names) AS u (node_id, name) WHERE EXISTS (
      SELECT FROM stream_head AS h WHERE h.node_id = u.node_id AND h.ledger_id <> of_ledger AND h.version > 0)
      AND NOT EXISTS (SELECT FROM stream_head AS h WHERE h.node_id = u.node_id AND h.ledger_id = of_ledger)
  LOOP
    PERFORM refuse_foreign(of_ledger, foreign_name, foreign_node);
  END LOOP;
  INSERT INTO node (node_id, project, name)
    SELECT u.node_id, of_project, u.name FROM unnest(head_nodes, head_names) WITH ORDINALITY AS u (node_id, name, place)
    WHERE NOT EXISTS (SELECT FROM node AS n WHERE n.node_id = u.node_id) ORDER BY u.place ON CONFLICT DO NOTHING;
  SELECT u.name INTO name_taken FROM unnest(head_nodes, head_names) AS u (node_id, name) JOIN node AS n USING (node_id)
    WHERE (n.project, n.name) <> (of_project, u.name) LIMIT 1;
  IF name_taken IS NOT NULL THEN
    RAISE EXCEPTION 'the node id of % is taken by another name', quote_literal(name_taken) USING ERRCODE = 'TY003';
  END IF;
  WITH fresh AS (
    INSERT INTO stream_head (node_id, ledger_id, version)
      SELECT u.node_id, of_ledger, u.events FROM unnest(head_nodes, head_counts) WITH ORDINALITY AS u (node_id, events, place)
      WHERE NOT EXISTS (SELECT FROM stream_head AS h WHERE h.node_id = u.node_id AND h.ledger_id = of_ledger) ORDER BY u.place
      ON CONFLICT (node_id, ledger_id) DO NOTHING RETURNING node_id, stream_id)
  SELECT array_agg(node_id ORDER BY node_id), array_agg(stream_id ORDER BY node_id) INTO made_nodes, made_ids FROM fresh;
  IF coalesce(cardinality(made_nodes), 0) = cardinality(head_nodes) THEN
    stream_ids := made_ids;
    versions := array_fill(0, ARRAY[cardinality(head_nodes)]);
    made := array_fill(true, ARRAY[cardinality(head_nodes)]);
    taken := '{}';
  ELSE
    SELECT array_agg(l.stream_id ORDER BY l.node_id), array_agg(l.version ORDER BY l.node_id), array_agg(l.made ORDER BY l.node_id)
      INTO stream_ids, versions, made FROM (
        SELECT * FROM (
          SELECT h.node_id, h.stream_id, h.version, false AS made FROM stream_head AS h
          WHERE h.node_id = ANY (head_nodes) AND h.ledger_id = of_ledger AND h.node_id <> ALL (coalesce(made_nodes, '{}'))
          ORDER BY h.node_id FOR UPDATE) AS locked
        UNION ALL SELECT m.node_id, m.stream_id, 0, true FROM unnest(made_nodes, made_ids) AS m (node_id, stream_id)) AS l;
    SELECT coalesce(array_agg(k.event_id), '{}') INTO taken FROM unnest(event_ids) AS u (event_id) JOIN event_key AS k USING (event_id);
  END IF;
  IF cardinality(taken) < cardinality(event_ids) THEN
    FOR j IN 1 .. cardinality(child_nodes) LOOP
      PERFORM add_node(of_project, child_names[j], child_nodes[j]);
    END LOOP;
    SELECT array_agg(nextval('event_id_seq')) INTO fresh_ids FROM generate_series(1, cardinality(event_ids) - cardinality(taken));
    PERFORM make_room('event', fresh_ids[cardinality(fresh_ids)]);
  END IF;
END $$
"""

OLD_BEGIN_BULK = """
CREATE FUNCTION begin_bulk(
  of_ledger text, of_project text, head_names text[], head_nodes bigint[], child_names text[], child_nodes bigint[], event_ids uuid[],
  OUT stream_ids bigint[], OUT versions int[], OUT taken uuid[], OUT fresh_ids bigint[])
LANGUAGE plpgsql AS $$
BEGIN
  SELECT l.stream_ids, l.versions INTO stream_ids, versions FROM lock_heads(of_ledger, of_project, head_names, head_nodes) AS l;
  SELECT coalesce(array_agg(k.event_id), '{}') INTO taken FROM unnest(event_ids) AS u (event_id) JOIN event_key AS k USING (event_id);
  IF cardinality(taken) < cardinality(event_ids) THEN
    FOR j IN 1 .. cardinality(child_nodes) LOOP
      PERFORM add_node(of_project, child_names[j], child_nodes[j]);
    END LOOP;
    SELECT array_agg(nextval('event_id_seq')) INTO fresh_ids FROM generate_series(1, cardinality(event_ids) - cardinality(taken));
    PERFORM make_room('event', fresh_ids[cardinality(fresh_ids)]);
  END IF;
END $$
"""


def upgrade() -> None:
    """Apply this revision."""
    op.execute(f"DROP FUNCTION {OLD}")
    op.execute(BEGIN_BULK)


def downgrade() -> None:
    """Undo this revision."""
    op.execute(f"DROP FUNCTION {NEW}")
    op.execute(OLD_BEGIN_BULK)
