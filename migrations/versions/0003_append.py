"""The functions that append: small batches in one round trip, the first half of a bulk append, and the packing of tokens."""

from typing import Any

from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: Any = None
depends_on: Any = None

# Nodes come sorted, and missing heads are made before present ones are locked, so appends never wait for each other in a circle. Both take
# the transaction id, before any event id. One stream, the usual case, needs none of that care and gets plain statements.
LOCK_HEADS = """
CREATE FUNCTION lock_heads(of_ledger text, of_project text, names text[], nodes bigint[], OUT stream_ids bigint[], OUT versions int[])
LANGUAGE plpgsql AS $$
DECLARE
  taken text;
BEGIN
  IF cardinality(nodes) = 1 THEN
    SELECT ARRAY[h.stream_id], ARRAY[h.version], CASE WHEN (n.project, n.name) <> (of_project, names[1]) THEN n.name END
      INTO stream_ids, versions, taken
      FROM stream_head AS h JOIN node AS n USING (node_id) WHERE h.node_id = nodes[1] AND h.ledger_id = of_ledger FOR UPDATE OF h;
    IF NOT FOUND THEN
      PERFORM add_node(of_project, names[1], nodes[1]);
      INSERT INTO stream_head (node_id, ledger_id, version) VALUES (nodes[1], of_ledger, 0)
        ON CONFLICT (node_id, ledger_id) DO NOTHING RETURNING ARRAY[stream_id], ARRAY[0] INTO stream_ids, versions;
      IF NOT FOUND THEN
        SELECT ARRAY[h.stream_id], ARRAY[h.version] INTO stream_ids, versions FROM stream_head AS h
          WHERE h.node_id = nodes[1] AND h.ledger_id = of_ledger FOR UPDATE;
      END IF;
    END IF;
  ELSE
    INSERT INTO node (node_id, project, name)
      SELECT u.node_id, of_project, u.name FROM unnest(nodes, names) WITH ORDINALITY AS u (node_id, name, place)
      WHERE NOT EXISTS (SELECT FROM node AS n WHERE n.node_id = u.node_id) ORDER BY u.place ON CONFLICT DO NOTHING;
    INSERT INTO stream_head (node_id, ledger_id, version)
      SELECT u.node_id, of_ledger, 0 FROM unnest(nodes) WITH ORDINALITY AS u (node_id, place)
      WHERE NOT EXISTS (SELECT FROM stream_head AS h WHERE h.node_id = u.node_id AND h.ledger_id = of_ledger) ORDER BY u.place
      ON CONFLICT (node_id, ledger_id) DO NOTHING;
    SELECT array_agg(l.stream_id ORDER BY l.node_id), array_agg(l.version ORDER BY l.node_id) INTO stream_ids, versions FROM (
      SELECT h.node_id, h.stream_id, h.version FROM stream_head AS h
      WHERE h.node_id = ANY (nodes) AND h.ledger_id = of_ledger ORDER BY h.node_id FOR UPDATE) AS l;
    SELECT u.name INTO taken FROM unnest(nodes, names) AS u (node_id, name) JOIN node AS n USING (node_id)
      WHERE (n.project, n.name) <> (of_project, u.name) LIMIT 1;
  END IF;
  IF taken IS NOT NULL THEN
    RAISE EXCEPTION 'the node id of % is taken by another name', quote_literal(taken) USING ERRCODE = 'TY003';
  END IF;
END $$
"""

ADD_NODE = """
CREATE FUNCTION add_node(of_project text, of_name text, of_node bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM node WHERE node_id = of_node AND project = of_project AND name = of_name;
  IF NOT FOUND THEN
    INSERT INTO node (node_id, project, name) VALUES (of_node, of_project, of_name) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
      PERFORM FROM node WHERE node_id = of_node AND project = of_project AND name = of_name;
      IF NOT FOUND THEN
        RAISE EXCEPTION 'the node id of % is taken by another name', quote_literal(of_name) USING ERRCODE = 'TY003';
      END IF;
    END IF;
  END IF;
END $$
"""

# A leaf is made of what the writer hashed and the version that the head gives: `leaf_heads` and `leaf_tails` are the encoded fields
# before and after the version (ledger/proof.py), so the encoding is written once. Plain statements in loops: with few rows, each costs
# less than one set-based statement takes to start.
APPEND_EVENTS = """
CREATE FUNCTION append_events(
  of_ledger text, of_project text, of_canonicaliser text, head_names text[], head_nodes bigint[],
  heads int[], keys text[], event_ids uuid[], kinds text[], schema_versions int[], occurred timestamptz[], actors text[],
  correlations text[], causations uuid[], bodies bytea[], leaf_heads bytea[], leaf_tails bytea[],
  expected int[] DEFAULT '{}',
  child_names text[] DEFAULT '{}', child_nodes bigint[] DEFAULT '{}',
  edge_of int[] DEFAULT '{}', edge_n int[] DEFAULT '{}', edge_children bigint[] DEFAULT '{}', edge_parents bigint[] DEFAULT '{}',
  edge_relations text[] DEFAULT '{}', edge_weights float8[] DEFAULT '{}',
  use_of int[] DEFAULT '{}', use_blobs bytea[] DEFAULT '{}',
  blob_ids bytea[] DEFAULT '{}', blob_subjects text[] DEFAULT '{}', blob_sizes bigint[] DEFAULT '{}', blob_codecs int[] DEFAULT '{}',
  blob_data bytea[] DEFAULT '{}',
  token_of int[] DEFAULT '{}', token_subjects text[] DEFAULT '{}', token_parents uuid[] DEFAULT '{}', token_shared int[] DEFAULT '{}',
  token_prompts bytea[] DEFAULT '{}', token_sampled bytea[] DEFAULT '{}', token_logprobs bytea[] DEFAULT '{}',
  OUT out_versions int[], OUT out_new boolean[])
LANGUAGE plpgsql AS $$
DECLARE
  stream_ids bigint[]; versions int[]; before int[]; known event%ROWTYPE; next_id bigint; fresh_ids bigint[];
  checked boolean := false; v text; room bigint := 0; number bigint;
BEGIN
  FOR i IN 1 .. cardinality(blob_ids) LOOP
    PERFORM FROM blob WHERE blob_id = blob_ids[i];
    IF NOT FOUND THEN
      number := next_blob_no();
      INSERT INTO blob (blob_id, blob_no, subject_id, size, chunks, codec)
        VALUES (blob_ids[i], number, blob_subjects[i], blob_sizes[i], 1, blob_codecs[i]) ON CONFLICT DO NOTHING;
      IF FOUND THEN
        INSERT INTO blob_chunk (blob_no, chunk, data) VALUES (number, 0, blob_data[i]);
      END IF;
    END IF;
  END LOOP;
  SELECT l.stream_ids, l.versions INTO stream_ids, versions FROM lock_heads(of_ledger, of_project, head_names, head_nodes) AS l;
  before := versions;
  FOR i IN 1 .. cardinality(event_ids) LOOP
    IF before[heads[i]] > 0 THEN
      SELECT e.* INTO known FROM event_key AS k JOIN event AS e ON e.id = k.id WHERE k.event_id = event_ids[i];
      IF FOUND THEN
        IF (known.kind, known.schema_version, known.body) IS DISTINCT FROM (kinds[i], schema_versions[i], bodies[i]) THEN
          RAISE EXCEPTION 'key % in stream % is taken by % with body %…; seen % with body %…: the same key needs the same content',
            quote_literal(keys[i]), quote_literal(head_names[heads[i]]), known.kind, left(encode(sha256(known.body), 'hex'), 12), kinds[i],
            left(encode(sha256(bodies[i]), 'hex'), 12) USING ERRCODE = 'TY002';
        END IF;
        out_versions[i] := known.version;
        out_new[i] := false;
        CONTINUE;
      END IF;
    END IF;
    IF NOT checked THEN
      FOR j IN 1 .. cardinality(expected) LOOP
        IF expected[j] IS NOT NULL AND expected[j] <> versions[j] THEN
          RAISE EXCEPTION 'stream % is at version %; expected %', quote_literal(head_names[j]), versions[j], expected[j]
            USING ERRCODE = 'TY001';
        END IF;
      END LOOP;
      FOR j IN 1 .. cardinality(child_nodes) LOOP
        PERFORM add_node(of_project, child_names[j], child_nodes[j]);
      END LOOP;
      checked := true;
    END IF;
    next_id := nextval('event_id_seq');
    IF next_id >= room THEN
      room := make_room('event', next_id);
    END IF;
    versions[heads[i]] := versions[heads[i]] + 1;
    v := versions[heads[i]]::text;
    INSERT INTO event (id, stream_id, version, event_id, kind, schema_version, canonicaliser, occurred_at, actor_id, correlation_id,
                       causation_id, key, body, leaf)
      VALUES (next_id, stream_ids[heads[i]], versions[heads[i]], event_ids[i], kinds[i], schema_versions[i], of_canonicaliser,
              occurred[i], actors[i], correlations[i], causations[i], keys[i], bodies[i],
              sha256(leaf_heads[i] || int4send(octet_length(v)) || v::bytea || leaf_tails[i]));
    INSERT INTO event_key (event_id, id) VALUES (event_ids[i], next_id);
    fresh_ids[i] := next_id;
    out_versions[i] := versions[heads[i]];
    out_new[i] := true;
  END LOOP;
  IF NOT checked THEN
    RETURN;
  END IF;
  FOR i IN 1 .. cardinality(edge_of) LOOP
    IF fresh_ids[edge_of[i]] IS NOT NULL THEN
      INSERT INTO edge (child, id, n, parent, relation, weight)
        VALUES (edge_children[i], fresh_ids[edge_of[i]], edge_n[i], edge_parents[i], edge_relations[i], edge_weights[i]);
    END IF;
  END LOOP;
  FOR i IN 1 .. cardinality(use_of) LOOP
    IF fresh_ids[use_of[i]] IS NOT NULL THEN
      SELECT blob_no INTO number FROM blob WHERE blob_id = use_blobs[i];
      IF NOT FOUND THEN
        RAISE EXCEPTION 'blob % is named by an event but is not stored; store it in or before the same append', encode(use_blobs[i], 'hex')
          USING ERRCODE = 'TY004';
      END IF;
      INSERT INTO blob_use (blob_no, id) VALUES (number, fresh_ids[use_of[i]]);
    END IF;
  END LOOP;
  FOR i IN 1 .. cardinality(token_of) LOOP
    IF fresh_ids[token_of[i]] IS NOT NULL THEN
      INSERT INTO token_live (event_id, stream_id, subject_id, parent, shared, prompt, sampled, logprobs)
        VALUES (event_ids[token_of[i]], stream_ids[heads[token_of[i]]], token_subjects[i], token_parents[i], token_shared[i],
                token_prompts[i], token_sampled[i], token_logprobs[i]);
    END IF;
  END LOOP;
  FOR j IN 1 .. cardinality(head_nodes) LOOP
    IF versions[j] <> before[j] THEN
      UPDATE stream_head SET version = versions[j] WHERE stream_id = stream_ids[j];
    END IF;
  END LOOP;
END $$
"""

# What a reviewer calls: the arguments of append_events, taken from it so that they stay the same, for events of reviews alone.
APPEND_REVIEWS = """
DO $make$
DECLARE
  appended oid := 'append_events'::regproc; names text;
BEGIN
  SELECT string_agg(quote_ident(a.name), ', ' ORDER BY a.n) INTO names
    FROM pg_proc AS p, unnest(p.proargnames[1:p.pronargs]) WITH ORDINALITY AS a (name, n) WHERE p.oid = appended;
  EXECUTE format($function$
    CREATE FUNCTION append_reviews(%1$s)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $body$
    DECLARE
      allowed text[] := ARRAY['ReviewRequested', 'ReviewClaimed', 'ReviewDecided'];
    BEGIN
      IF NOT kinds <@ allowed OR cardinality(child_nodes) > 0 OR cardinality(token_of) > 0
         OR EXISTS (SELECT FROM unnest(head_names) AS h WHERE NOT starts_with(h, 'review-')) THEN
        RAISE EXCEPTION 'a reviewer appends %%; allowed: %% in streams review-...', kinds, allowed USING ERRCODE = 'TY007';
      END IF;
      SELECT a.out_versions, a.out_new INTO out_versions, out_new FROM append_events(%2$s) AS a;
    END $body$
  $function$, pg_get_function_arguments(appended), names);
END $make$
"""

# The first half of a bulk append: heads are locked, keys looked up, ids taken; the writer then copies its rows in.
BEGIN_BULK = """
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

# Staged tokens become one pack: the writer compressed exactly the rows that are here, which the digest over them shows, and in one
# transaction the pack takes their place. Only this function may remove them.
PACK_TOKENS = """
CREATE FUNCTION pack_tokens(of_stream bigint, of_subject text, of_events uuid[], live_digest bytea, packed bytea) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  here bytea; counted int; number bigint;
BEGIN
  PERFORM FROM stream_head WHERE stream_id = of_stream FOR UPDATE;
  SELECT sha256(coalesce(string_agg(token_row_digest(t), ''::bytea ORDER BY t.event_id), ''::bytea)), count(*) INTO here, counted
    FROM token_live AS t WHERE t.stream_id = of_stream AND t.subject_id = of_subject AND t.event_id = ANY (of_events);
  IF counted <> cardinality(of_events) OR here <> live_digest THEN
    RAISE EXCEPTION 'the % calls to pack are not the % that are staged', cardinality(of_events), counted USING ERRCODE = 'TY005';
  END IF;
  number := nextval('token_pack_seq');
  PERFORM make_room('token_pack', number);
  INSERT INTO token_pack (pack_id, stream_id, subject_id, calls, data) VALUES (number, of_stream, of_subject, counted, packed);
  PERFORM set_config('tallystick.packing', 'on', true);
  DELETE FROM token_live WHERE stream_id = of_stream AND subject_id = of_subject AND event_id = ANY (of_events);
  PERFORM set_config('tallystick.packing', 'off', true);
  RETURN number;
END $$
"""

TOKEN_ROW_DIGEST = """
CREATE FUNCTION token_row_digest(t token_live) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT sha256(uuid_send(t.event_id) || coalesce(uuid_send(t.parent), ''::bytea) || int4send(t.shared)
    || int4send(coalesce(octet_length(t.prompt), -1)) || coalesce(t.prompt, ''::bytea)
    || int4send(coalesce(octet_length(t.sampled), -1)) || coalesce(t.sampled, ''::bytea)
    || int4send(coalesce(octet_length(t.logprobs), -1)) || coalesce(t.logprobs, ''::bytea))
$$
"""

TOKEN_GUARD = """
CREATE FUNCTION refuse_token_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND current_setting('tallystick.packing', true) = 'on' THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION 'token_live is append-only until it is packed: % is refused', TG_OP USING ERRCODE = '55000';
END $$
"""

FUNCTIONS = (
    "pack_tokens(bigint, text, uuid[], bytea, bytea)", "token_row_digest(token_live)",
    "begin_bulk(text, text, text[], bigint[], text[], bigint[], uuid[])", "lock_heads(text, text, text[], bigint[])",
    "add_node(text, text, bigint)",
)  # fmt: skip


def upgrade() -> None:
    """Apply this revision."""
    for statement in (ADD_NODE, LOCK_HEADS, APPEND_EVENTS, APPEND_REVIEWS, BEGIN_BULK, TOKEN_ROW_DIGEST, PACK_TOKENS, TOKEN_GUARD):
        op.execute(statement)
    op.execute(
        "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON token_live"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse_token_change()"
    )


def downgrade() -> None:
    """Undo this revision."""
    op.execute("DROP TRIGGER append_only ON token_live")
    op.execute("DROP FUNCTION refuse_token_change()")
    op.execute("DO $$ BEGIN EXECUTE 'DROP FUNCTION ' || 'append_reviews'::regproc::oid::regprocedure; END $$")
    op.execute("DO $$ BEGIN EXECUTE 'DROP FUNCTION ' || 'append_events'::regproc::oid::regprocedure; END $$")
    for function in FUNCTIONS:
        op.execute(f"DROP FUNCTION {function}")
