"""Changes that a superuser can make behind the ledger's back with the guards off, each with what an audit must say of it.

A change is made over a connection in a transaction. It returns what must be found: positions of which one must be named, each alone or
within an interval of events; an empty list where only something must be found, because no event was touched.
"""

import json
import random
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any
from uuid import UUID

import psycopg

from ledger import tree
from ledger.canonical import canonical_bytes
from ledger.ids import event_id, node_id
from ledger.prepared import stamp
from ledger.proof import LeafFields, leaf_hash
from ledger.verify import Problem

Connection = psycopg.Connection[Any]
Change = Callable[[Connection, random.Random], list[int]]
CHANGES: dict[str, Change] = {}
READ_MODELS = ("rollout_view", "verdict_view", "reward_view", "bundle_view", "group_view", "call_view")


def change(function: Change) -> Change:
    """Register a kind of change under its function's name."""
    CHANGES[function.__name__] = function
    return function


def located(problems: Sequence[Problem], positions: Sequence[int]) -> bool:
    """Whether a problem names one of the positions, or the interval of events that holds it."""
    if not positions:
        return bool(problems)
    for problem in problems:
        if problem.position in positions:
            return True
        words = problem.subject.split()
        if words[:1] == ["events"] and any(int(words[1]) <= position <= int(words[3]) for position in positions):
            return True
        if words[:1] == ["step"] and any(int(words[-3]) <= position <= int(words[-1]) for position in positions):
            return True
    return False


def sealed_size(conn: Connection) -> int:
    """Number of events that checkpoints in the database cover."""
    return int(conn.execute("SELECT max(size) FROM checkpoint").fetchone()[0])  # type: ignore[index]


def any_position(conn: Connection, rng: random.Random) -> tuple[int, int]:
    """Position and id of an event that is sealed."""
    position = rng.randint(1, sealed_size(conn))
    return position, int(conn.execute("SELECT id FROM event_order WHERE position = %s", (position,)).fetchone()[0])  # type: ignore[index]


def leaf_again(conn: Connection, ident: int) -> bytes:
    """Make the leaf, the id and the key of an event fit its fields again, as an attacker who knows the format would."""
    row = conn.execute(
        "SELECT ledger_id, event_id::text, project, stream, version, kind, schema_version, canonicaliser, occurred_at, actor_id,"
        " correlation_id, causation_id::text, key, body FROM recorded_event WHERE id = %s",
        (ident,),
    ).fetchone()
    assert row is not None
    derived = event_id(row[0], row[2], row[3], row[12])
    leaf = leaf_hash(LeafFields._make([row[0], derived, *row[2:8], stamp(row[8]), *row[9:13], sha256(row[13]).digest()]))
    conn.execute("UPDATE event SET leaf = %s, event_id = %s WHERE id = %s", (leaf, UUID(derived), ident))
    conn.execute("DELETE FROM event_key WHERE id = %s OR event_id = %s", (ident, UUID(derived)))
    conn.execute("INSERT INTO event_key (event_id, id) VALUES (%s, %s)", (UUID(derived), ident))
    return leaf


def tiles_again(conn: Connection) -> None:
    """Make all tiles fit the leaves in order again."""
    size = min(sealed_size(conn), int(conn.execute("SELECT max(position) FROM event_order").fetchone()[0]))  # type: ignore[index]
    rows = conn.execute(
        "SELECT e.leaf FROM event_order AS o JOIN event AS e USING (id) WHERE o.position <= %s ORDER BY o.position", (size,)
    )
    _, filled = tree.extend(tree.Edge(), [bytes(row[0]) for row in rows])
    conn.execute("DELETE FROM tree_tile")
    for tile in filled:
        conn.execute("INSERT INTO tree_tile VALUES (%s, %s, %s, %s)", (tile.level, tile.index, tile.root, tile.hashes))


def checkpoints_again(conn: Connection, rng: random.Random, above: int) -> None:
    """Do with the checkpoints above a size what an attacker without the key can: leave them, take them away, or give them the new root."""
    what = rng.randrange(3)
    if what == 1:
        conn.execute("DELETE FROM checkpoint WHERE size > %s", (above,))
        conn.execute("DELETE FROM tree_tile WHERE index >= (%s::bigint >> (8 * (level + 1)))", (above,))
    elif what == 2:
        rows = conn.execute("SELECT e.leaf FROM event_order AS o JOIN event AS e USING (id) ORDER BY o.position").fetchall()
        for size, note in conn.execute("SELECT size, note FROM checkpoint WHERE size > %s", (above,)).fetchall():
            root = tree.edge_root(tree.extend(tree.Edge(), [bytes(row[0]) for row in rows[:size]])[0])
            conn.execute("UPDATE checkpoint SET root = %s, note = %s WHERE size = %s", (root, note, size))


def renumber(conn: Connection) -> None:
    """Close gaps in the order, and make the last row of the ordering step fit."""
    conn.execute(
        "CREATE TEMP TABLE renumbered ON COMMIT DROP AS SELECT row_number() OVER (ORDER BY position) AS position, id FROM event_order"
    )
    conn.execute("DELETE FROM event_order")
    conn.execute("INSERT INTO event_order (position, id) SELECT position, id FROM renumbered")
    conn.execute("DROP TABLE renumbered")
    conn.execute("DELETE FROM order_step")
    conn.execute(
        "INSERT INTO order_step SELECT 1, max(id), count(*), count(*), '{}', '{}', max(id) - count(*) FROM event_order",
    )


def forget(conn: Connection, ident: int) -> None:
    """Take an event away with everything that names it."""
    for statement in (
        "DELETE FROM edge WHERE id = %s", "DELETE FROM blob_use WHERE id = %s", "DELETE FROM event_key WHERE id = %s",
        "DELETE FROM event WHERE id = %s", "DELETE FROM event_order WHERE id = %s",
    ):  # fmt: skip
        conn.execute(statement, (ident,))
    conn.execute("DELETE FROM stream_head AS h WHERE NOT EXISTS (SELECT FROM event AS e WHERE e.stream_id = h.stream_id)")
    conn.execute(
        "UPDATE stream_head AS h SET version = e.version FROM (SELECT stream_id, max(version) AS version FROM event GROUP BY 1) AS e"
        " WHERE e.stream_id = h.stream_id AND e.version <> h.version"
    )
    conn.execute(
        "DELETE FROM node AS n WHERE NOT EXISTS (SELECT FROM stream_head AS h WHERE h.node_id = n.node_id)"
        " AND NOT EXISTS (SELECT FROM edge AS x WHERE x.child = n.node_id)"
    )


def other_body(conn: Connection, rng: random.Random, ident: int) -> None:
    """Change a number, a truth or a text somewhere in a body, in canonical form."""
    body = json.loads(bytes(conn.execute("SELECT body FROM event WHERE id = %s", (ident,)).fetchone()[0]))  # type: ignore[index]
    places = [name for name, value in body.items() if isinstance(value, bool | int | float | str)]
    name = rng.choice(places)
    value = body[name]
    body[name] = (not value) if isinstance(value, bool) else value + 1 if isinstance(value, int | float) else f"{value}x"
    conn.execute("UPDATE event SET body = %s WHERE id = %s", (canonical_bytes(body), ident))


@change
def field_of_an_event(conn: Connection, rng: random.Random) -> list[int]:
    """One column of an event is changed, and nothing else."""
    position, ident = any_position(conn, rng)
    statement = rng.choice((
        "version = version + 1", "kind = kind || 'x'", "schema_version = schema_version + 1", "canonicaliser = 'c2'",
        "occurred_at = occurred_at + interval '1 microsecond'", "actor_id = 'someone'", "correlation_id = 'another'",
        "causation_id = gen_random_uuid()", "key = key || 'x'", "event_id = gen_random_uuid()", "leaf = sha256(leaf)", "leaf = '\\x00'",
        "body = body || ' '", "body = '{}'", "body = ''", "stream_id = (SELECT max(stream_id) FROM stream_head) + 1",
        "stream_id = (SELECT s.stream_id FROM stream_head AS s WHERE s.stream_id <> event.stream_id ORDER BY 1 LIMIT 1)",
    ))  # fmt: skip
    conn.execute(f"UPDATE event SET {statement} WHERE id = %s", (ident,))  # type: ignore[call-overload]
    return [position]


@change
def body_of_an_event(conn: Connection, rng: random.Random) -> list[int]:
    """A body says something else."""
    position, ident = any_position(conn, rng)
    other_body(conn, rng, ident)
    return [position]


@change
def body_and_leaf(conn: Connection, rng: random.Random) -> list[int]:
    """A body says something else, and its leaf fits it."""
    position, ident = any_position(conn, rng)
    other_body(conn, rng, ident)
    leaf_again(conn, ident)
    return [position]


@change
def body_leaf_and_tiles(conn: Connection, rng: random.Random) -> list[int]:
    """A body, its leaf and all tiles are rewritten consistently; only signatures are out of reach."""
    position, ident = any_position(conn, rng)
    other_body(conn, rng, ident)
    leaf_again(conn, ident)
    tiles_again(conn)
    checkpoints_again(conn, rng, position - 1)
    return [position]


@change
def actor_leaf_and_tiles(conn: Connection, rng: random.Random) -> list[int]:
    """Who did it is rewritten consistently."""
    position, ident = any_position(conn, rng)
    conn.execute("UPDATE event SET actor_id = 'someone' WHERE id = %s", (ident,))
    leaf_again(conn, ident)
    tiles_again(conn)
    checkpoints_again(conn, rng, position - 1)
    return [position]


@change
def deleted_event(conn: Connection, rng: random.Random) -> list[int]:
    """The row of an event is taken away."""
    position, ident = any_position(conn, rng)
    conn.execute("DELETE FROM event WHERE id = %s", (ident,))
    return [position]


@change
def deleted_without_a_trace(conn: Connection, rng: random.Random) -> list[int]:
    """An event is taken away with all that names it, the others move up, and tiles are rewritten."""
    position, ident = any_position(conn, rng)
    forget(conn, ident)
    renumber(conn)
    tiles_again(conn)
    checkpoints_again(conn, rng, position - 1)
    return [position]


@change
def inserted_event(conn: Connection, rng: random.Random) -> list[int]:
    """An event that never was is put in between, in a stream of its own, consistent in itself."""
    position, ident = any_position(conn, rng)
    project, number = "test", f"forged-{rng.randrange(10**9)}"
    node = node_id(project, f"reward-{number}")
    conn.execute("INSERT INTO node VALUES (%s, %s, %s)", (node, project, f"reward-{number}"))
    stream = conn.execute(
        "INSERT INTO stream_head (node_id, ledger_id, version) SELECT %s, ledger_id, 1 FROM ledger RETURNING stream_id", (node,)
    ).fetchone()[0]  # type: ignore[index]
    fresh = conn.execute("SELECT nextval('event_id_seq')").fetchone()[0]  # type: ignore[index]
    body = canonical_bytes(
        {"reward_id": number, "rollout_id": "x", "rule": "r", "rule_id": "a" * 64, "verdict_ids": [], "value": 1.0, "reason": "y"}
    )
    conn.execute(
        "INSERT INTO event SELECT %s, %s, 1, gen_random_uuid(), 'RewardDerived', 1, 'c1', occurred_at, actor_id, NULL, NULL, 'derived', %s, leaf"
        " FROM event WHERE id = %s",
        (fresh, stream, body, ident),
    )
    leaf_again(conn, fresh)
    conn.execute("UPDATE event_order SET position = position + 5000000 WHERE position >= %s", (position,))
    conn.execute("UPDATE event_order SET position = position - 4999999 WHERE position > 5000000")
    conn.execute("INSERT INTO event_order VALUES (%s, %s)", (position, fresh))
    renumber(conn)
    tiles_again(conn)
    checkpoints_again(conn, rng, position - 1)
    return [position]


@change
def swapped_positions(conn: Connection, rng: random.Random) -> list[int]:
    """Two events change places, with or without their tiles."""
    (one, first), (other, second) = any_position(conn, rng), any_position(conn, rng)
    if one == other:
        other, second = (one % sealed_size(conn)) + 1, 0
        second = int(conn.execute("SELECT id FROM event_order WHERE position = %s", (other,)).fetchone()[0])  # type: ignore[index]
    conn.execute(
        "UPDATE event_order SET id = CASE position WHEN %s THEN %s ELSE %s END WHERE position IN (%s, %s)", (one, second, first, one, other)
    )
    if rng.random() < 0.5:
        tiles_again(conn)
        checkpoints_again(conn, rng, min(one, other) - 1)
    return [one, other]


@change
def truncated(conn: Connection, rng: random.Random) -> list[int]:
    """Everything after a position is gone from every table, as if it had never been."""
    position, _ = any_position(conn, rng)
    gone = [int(row[0]) for row in conn.execute("SELECT id FROM event_order WHERE position >= %s", (position,))]
    for statement in (
        "DELETE FROM edge WHERE id = ANY (%s)", "DELETE FROM blob_use WHERE id = ANY (%s)", "DELETE FROM event_key WHERE id = ANY (%s)",
        "DELETE FROM event WHERE id = ANY (%s)", "DELETE FROM event_order WHERE id = ANY (%s)",
    ):  # fmt: skip
        conn.execute(statement, (gone,))
    forget(conn, -1)
    if position > 1:
        renumber(conn)
    conn.execute("DELETE FROM checkpoint WHERE size >= %s", (position,))
    conn.execute("DELETE FROM tree_tile WHERE index >= (%s::bigint >> (8 * (level + 1)))", (position - 1,))
    return [position]


@change
def forked_tail(conn: Connection, rng: random.Random) -> list[int]:
    """From a position on, every event says something else, and all is consistent but the signatures."""
    position, _ = any_position(conn, rng)
    for (ident,) in conn.execute("SELECT id FROM event_order WHERE position >= %s AND position < %s", (position, position + 5)).fetchall():
        conn.execute("UPDATE event SET actor_id = 'someone', occurred_at = occurred_at + interval '1 hour' WHERE id = %s", (ident,))
        leaf_again(conn, ident)
    tiles_again(conn)
    checkpoints_again(conn, rng, position - 1)
    return [position]


@change
def order_row(conn: Connection, rng: random.Random) -> list[int]:
    """A row of the order is taken away, moved to the end, or names another event."""
    position, _ = any_position(conn, rng)
    conn.execute(rng.choice((
        "DELETE FROM event_order WHERE position = %s", "UPDATE event_order SET position = position + 100000 WHERE position = %s",
        "UPDATE event_order SET id = id + 1 WHERE position = %s", "UPDATE event_order SET id = 1000000 WHERE position = %s",
    )), (position,))  # fmt: skip
    return [position]


@change
def appended_order_row(conn: Connection, rng: random.Random) -> list[int]:
    """An event gets a second position."""
    _, ident = any_position(conn, rng)
    conn.execute("INSERT INTO event_order SELECT max(position) + 1, %s FROM event_order", (ident,))
    return []


@change
def ordering_step(conn: Connection, rng: random.Random) -> list[int]:
    """A row of the ordering step is changed or taken away."""
    step = rng.choice([int(row[0]) for row in conn.execute("SELECT step FROM order_step")])
    conn.execute(rng.choice((
        "UPDATE order_step SET high = high + 1 WHERE step = %s", "UPDATE order_step SET position = position - 1 WHERE step = %s",
        "UPDATE order_step SET ordered = ordered + 1 WHERE step = %s", "UPDATE order_step SET dead = dead + 1 WHERE step = %s",
        "UPDATE order_step SET step = step + 100000 WHERE step = %s", "DELETE FROM order_step WHERE step = %s",
        "UPDATE order_step SET holes = holes || high + 5, hole_bounds = hole_bounds || 5::bigint WHERE step = %s",
    )), (step,))  # fmt: skip
    return []


@change
def edge(conn: Connection, rng: random.Random) -> list[int]:
    """An edge says something else, is taken away, or is added."""
    rows = conn.execute(
        "SELECT x.child, x.id, x.n, o.position FROM edge AS x JOIN event_order AS o USING (id) WHERE o.position <= %s ORDER BY 2, 3",
        (sealed_size(conn),),
    ).fetchall()
    child, ident, n, position = rng.choice(rows)
    conn.execute(rng.choice((
        "UPDATE edge SET parent = parent + 1 WHERE (child, id, n) = (%s, %s, %s)", "UPDATE edge SET relation = 'x' WHERE (child, id, n) = (%s, %s, %s)",
        "UPDATE edge SET weight = coalesce(weight, 0) + 1e-9 WHERE (child, id, n) = (%s, %s, %s)",
        "UPDATE edge SET n = n + 100 WHERE (child, id, n) = (%s, %s, %s)", "DELETE FROM edge WHERE (child, id, n) = (%s, %s, %s)",
        "UPDATE edge SET child = child + 1 WHERE (child, id, n) = (%s, %s, %s)",
        "INSERT INTO edge SELECT child, id, 99, parent, relation, weight FROM edge WHERE (child, id, n) = (%s, %s, %s)",
    )), (child, ident, n))  # fmt: skip
    return [position]


@change
def edge_of_no_event(conn: Connection, rng: random.Random) -> list[int]:
    """An edge is added that no event states."""
    conn.execute(
        "INSERT INTO edge SELECT child, %s, n, parent, relation, weight FROM edge ORDER BY id LIMIT 1", (10**9 + rng.randrange(100),)
    )
    return []


@change
def blob_bytes(conn: Connection, rng: random.Random) -> list[int]:
    """Bytes of a blob, of tokens too, are changed, cut or taken away."""
    number, positions = _blob(conn, rng)
    conn.execute(rng.choice((
        "UPDATE blob_chunk SET data = set_byte(data, 0, get_byte(data, 0) # 1) WHERE blob_no = %s AND octet_length(data) > 0",
        "UPDATE blob_chunk SET data = data || '\\x00' WHERE blob_no = %s", "UPDATE blob_chunk SET chunk = 7 WHERE blob_no = %s",
        "UPDATE blob_chunk SET data = substr(data, 2) WHERE blob_no = %s", "DELETE FROM blob_chunk WHERE blob_no = %s",
        "INSERT INTO blob_chunk SELECT blob_no, 1, '' FROM blob_chunk WHERE blob_no = %s",
    )), (number,))  # fmt: skip
    return positions


@change
def blob_row(conn: Connection, rng: random.Random) -> list[int]:
    """The row of a blob is changed or taken away."""
    number, positions = _blob(conn, rng)
    conn.execute(rng.choice((
        "UPDATE blob SET size = size + 1 WHERE blob_no = %s", "UPDATE blob SET chunks = chunks + 1 WHERE blob_no = %s",
        "UPDATE blob SET blob_id = sha256(blob_id) WHERE blob_no = %s", "DELETE FROM blob WHERE blob_no = %s",
        "UPDATE blob SET subject_id = CASE subject_id WHEN 'public' THEN 'project:test' ELSE 'public' END WHERE blob_no = %s",
        "UPDATE blob SET blob_no = 1000000 WHERE blob_no = %s",
    )), (number,))  # fmt: skip
    return positions


@change
def staged_tokens(conn: Connection, rng: random.Random) -> list[int]:
    """Staged tokens of a call are changed, moved, put under another parent or taken away."""
    event_id, position = rng.choice(_calls(conn, "SELECT event_id FROM token_live"))
    column = rng.choice(("prompt", "sampled", "logprobs"))
    conn.execute(rng.choice((  # type: ignore[call-overload]
        f"UPDATE token_live SET {column} = set_byte({column}, 20, get_byte({column}, 20) # 4) WHERE event_id = %s",
        f"UPDATE token_live SET {column} = NULL WHERE event_id = %s", f"UPDATE token_live SET {column} = {column} || '\\x00' WHERE event_id = %s",
        "UPDATE token_live SET shared = shared + 1 WHERE event_id = %s", "DELETE FROM token_live WHERE event_id = %s",
        "UPDATE token_live SET subject_id = 'public' WHERE event_id = %s",
        "UPDATE token_live SET stream_id = (SELECT min(stream_id) FROM stream_head) WHERE event_id = %s",
    )), (event_id,))  # fmt: skip
    return [position]


@change
def packed_tokens(conn: Connection, rng: random.Random) -> list[int]:
    """A pack is changed, moved or taken away."""
    packs = [(int(row[0]), int(row[1])) for row in conn.execute("SELECT pack_id, stream_id FROM token_pack ORDER BY 1")]
    number, stream = rng.choice(packs)
    conn.execute(rng.choice((
        "UPDATE token_pack SET data = set_byte(data, 30, get_byte(data, 30) # 4) WHERE pack_id = %s",
        "UPDATE token_pack SET data = substr(data, 1, octet_length(data) - 1) WHERE pack_id = %s",
        "UPDATE token_pack SET calls = calls + 1 WHERE pack_id = %s", "DELETE FROM token_pack WHERE pack_id = %s",
        "UPDATE token_pack SET subject_id = 'public' WHERE pack_id = %s",
        "UPDATE token_pack SET stream_id = (SELECT min(stream_id) FROM stream_head) WHERE pack_id = %s",
    )), (number,))  # fmt: skip
    return [position for _, position in _calls(conn, f"SELECT event_id FROM event WHERE kind = 'ModelCalled' AND stream_id = {stream}")]


@change
def salt(conn: Connection, rng: random.Random) -> list[int]:
    """The salt of a subject is another."""
    conn.execute("UPDATE subject SET salt = %s WHERE salt IS NOT NULL", (rng.randbytes(32),))
    return []


@change
def blob_use(conn: Connection, rng: random.Random) -> list[int]:
    """An event is noted to use a blob that it does not name, or is not noted to use one that it does."""
    number, ident, position = rng.choice(
        conn.execute(
            "SELECT u.blob_no, u.id, o.position FROM blob_use AS u JOIN event_order AS o USING (id) WHERE o.position <= %s ORDER BY 1, 2",
            (sealed_size(conn),),
        ).fetchall()
    )
    if rng.random() < 0.5:
        conn.execute("DELETE FROM blob_use WHERE (blob_no, id) = (%s, %s)", (number, ident))
    else:
        conn.execute(
            "INSERT INTO blob_use (blob_no, id) SELECT min(b.blob_no), %s FROM blob AS b WHERE NOT EXISTS"
            " (SELECT FROM blob_use AS u WHERE u.blob_no = b.blob_no AND u.id = %s)",
            (ident, ident),
        )
    return [position]


@change
def stream_head(conn: Connection, rng: random.Random) -> list[int]:
    """The head of a stream is changed or taken away."""
    stream = rng.choice([int(row[0]) for row in conn.execute("SELECT stream_id FROM stream_head ORDER BY 1")])
    conn.execute(rng.choice((
        "UPDATE stream_head SET version = version + 1 WHERE stream_id = %s", "UPDATE stream_head SET version = 0 WHERE stream_id = %s",
        "UPDATE stream_head SET ledger_id = 'x' WHERE stream_id = %s", "UPDATE stream_head SET node_id = node_id + 1 WHERE stream_id = %s",
        "DELETE FROM stream_head WHERE stream_id = %s",
    )), (stream,))  # fmt: skip
    return []


@change
def event_key(conn: Connection, rng: random.Random) -> list[int]:
    """An idempotency key is freed, names another event, or is taken by none."""
    position, ident = any_position(conn, rng)
    what = rng.randrange(3)
    if what == 2:
        conn.execute("INSERT INTO event_key VALUES (gen_random_uuid(), %s)", (10**9,))
        return []
    conn.execute(("DELETE FROM event_key WHERE id = %s", "UPDATE event_key SET id = id + 1 WHERE id = %s")[what], (ident,))
    return [position]


@change
def node(conn: Connection, rng: random.Random) -> list[int]:
    """The name of a node is changed, taken away or added."""
    ident = rng.choice([int(row[0]) for row in conn.execute("SELECT node_id FROM node ORDER BY 1")])
    conn.execute(rng.choice((
        "UPDATE node SET name = name || 'x' WHERE node_id = %s", "UPDATE node SET project = 'x' WHERE node_id = %s",
        "DELETE FROM node WHERE node_id = %s", "INSERT INTO node SELECT node_of('test', 'x'), 'test', 'x' WHERE %s IS NOT NULL",
        "UPDATE node SET node_id = node_id + 1 WHERE node_id = %s",
    )), (ident,))  # fmt: skip
    return []


@change
def tile(conn: Connection, rng: random.Random) -> list[int]:
    """A tile is changed, taken away or added."""
    conn.execute(rng.choice((
        "UPDATE tree_tile SET hashes = set_byte(hashes, %s, get_byte(hashes, %s) # 1) WHERE index = 0", "UPDATE tree_tile SET root = sha256(root) WHERE %s + %s >= 0",
        "DELETE FROM tree_tile WHERE %s + %s >= 0", "INSERT INTO tree_tile SELECT level + 1, index, root, hashes FROM tree_tile WHERE %s + %s >= 0",
        "INSERT INTO tree_tile SELECT level, index + 1, root, hashes FROM tree_tile WHERE %s + %s >= 0",
    )), (byte := rng.randrange(8192), byte))  # fmt: skip
    return []


@change
def checkpoint(conn: Connection, rng: random.Random) -> list[int]:
    """A checkpoint is changed or taken away."""
    size = rng.choice([int(row[0]) for row in conn.execute("SELECT size FROM checkpoint ORDER BY 1")])
    conn.execute(rng.choice((
        "UPDATE checkpoint SET root = sha256(root) WHERE size = %s", "UPDATE checkpoint SET size = size - 1 WHERE size = %s",
        "UPDATE checkpoint SET origin = origin || 'x' WHERE size = %s", "DELETE FROM checkpoint WHERE size = %s",
        "UPDATE checkpoint SET note = replace(note, E'\\n\\n', E'\\nmore\\n\\n') WHERE size = %s", "UPDATE checkpoint SET note = '' WHERE size = %s",
        "INSERT INTO checkpoint SELECT origin, size - 1, root, note FROM checkpoint WHERE size = %s",
    )), (size,))  # fmt: skip
    return []


@change
def read_model(conn: Connection, rng: random.Random) -> list[int]:
    """A row of a read model is changed, taken away or added."""
    view = rng.choice(READ_MODELS)
    shown = conn.execute("SELECT view_definition FROM information_schema.views WHERE table_name = %s", (view,)).fetchone()
    assert shown is not None
    table = str(shown[0]).split("FROM ")[1].split()[0].rstrip(";")
    what = rng.randrange(3)
    if what == 0:
        conn.execute(f"DELETE FROM {table} WHERE ctid = (SELECT ctid FROM {table} LIMIT 1)")  # type: ignore[call-overload]
        return []
    names = conn.execute(
        "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
        " AND format_type(atttypid, NULL) IN ('character varying', 'integer', 'bigint', 'boolean') AND attname <> 'project' ORDER BY 1",
        (table,),
    ).fetchall()
    name, kind = rng.choice(names)
    value = {"character varying": f"coalesce(\"{name}\", '') || 'x'", "boolean": f'"{name}" IS NOT TRUE'}.get(
        kind, f'coalesce("{name}", 0) + 1'
    )
    conn.execute(f'UPDATE {table} SET "{name}" = {value} WHERE ctid = (SELECT ctid FROM {table} LIMIT 1)')  # type: ignore[call-overload]
    return []


@change
def genesis(conn: Connection, rng: random.Random) -> list[int]:
    """The ledger's own row is changed or taken away."""
    conn.execute(rng.choice(("UPDATE ledger SET ledger_id = 'x'", "DELETE FROM ledger")))
    return []


def _blob(conn: Connection, rng: random.Random) -> tuple[int, list[int]]:
    rows = conn.execute(
        "SELECT b.blob_no, array_agg(o.position) FROM blob AS b JOIN blob_use AS u USING (blob_no) JOIN event_order AS o USING (id)"
        " GROUP BY 1 ORDER BY 1"
    ).fetchall()
    number, positions = rng.choice(rows)
    return int(number), [int(position) for position in positions]


def _calls(conn: Connection, events: str) -> list[tuple[str, int]]:
    """Event id and position of those of these events that are sealed."""
    rows = conn.execute(  # type: ignore[call-overload]
        f"SELECT k.event_id::text, o.position FROM event_key AS k JOIN event_order AS o USING (id) WHERE k.event_id IN ({events})"
        " AND o.position <= (SELECT max(size) FROM checkpoint) ORDER BY 2"
    ).fetchall()
    return [(str(row[0]), int(row[1])) for row in rows]
