"""What a running ledger looks like from outside: lags, sizes and room, read in a few short statements. Reads the database."""

from dataclasses import dataclass
from typing import Any

import psycopg

Connection = psycopg.Connection[Any]

_ORDER = """
WITH last AS (SELECT coalesce(max(step), 0) AS step FROM order_step),
     s AS (SELECT o.* FROM order_step AS o, last WHERE o.step = last.step),
     waiting AS (SELECT e.recorded_at FROM event AS e, (SELECT coalesce((SELECT high FROM s), 0) AS high) AS h WHERE e.id > h.high
                 UNION ALL SELECT e.recorded_at FROM s, unnest(s.holes) AS hole JOIN event AS e ON e.id = hole),
     newest AS (SELECT e.recorded_at FROM s JOIN event_order AS o ON o.position = s.position JOIN event AS e USING (id))
SELECT coalesce((SELECT position FROM s), 0), coalesce((SELECT step FROM s), 0), coalesce((SELECT cardinality(holes) FROM s), 0),
       coalesce((SELECT dead FROM s), 0), (SELECT count(*) FROM waiting),
       coalesce((SELECT extract(epoch FROM clock_timestamp() - min(recorded_at)) FROM waiting), 0)::float8,
       (SELECT extract(epoch FROM clock_timestamp() - recorded_at) FROM newest)::float8
"""
_SEAL = """
SELECT size, extract(epoch FROM clock_timestamp() - sealed_at)::float8 FROM checkpoint ORDER BY size DESC, sealed_at DESC LIMIT 1
"""
# A rollout's staged rows are packed when it ends, so those of ended rollouts are late. The end is the last event of most streams.
_STAGED = """
WITH staged AS (SELECT stream_id, count(*) AS n, sum(coalesce(octet_length(prompt), 0) + coalesce(octet_length(sampled), 0)
                  + coalesce(octet_length(logprobs), 0)) AS bytes FROM token_live GROUP BY 1)
SELECT coalesce(sum(n), 0)::bigint, coalesce(sum(bytes), 0)::bigint,
       coalesce(sum(n) FILTER (WHERE EXISTS (
         SELECT FROM event AS e WHERE e.stream_id = s.stream_id AND e.kind = 'RolloutEnded')), 0)::bigint
FROM staged AS s
"""
_ROOM = """
SELECT r.parent, r.reached, (SELECT max(substring(c.relname FROM '_p(\\d+)$')::bigint) + 1 FROM pg_inherits AS i
         JOIN pg_class AS c ON c.oid = i.inhrelid WHERE i.inhparent = r.parent::regclass) * partition_width() - r.reached, partition_width()
FROM (SELECT 'event', last_value FROM event_id_seq
      UNION ALL SELECT 'event_order', coalesce((SELECT position FROM order_step ORDER BY step DESC LIMIT 1), 0)
      UNION ALL SELECT 'blob_chunk', last_value FROM blob_no_seq
      UNION ALL SELECT 'token_pack', last_value FROM token_pack_seq) AS r (parent, reached)
"""
_SIZES = """
SELECT pg_database_size(current_database()),
       (SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint FROM pg_partition_tree('blob_chunk'))
"""


@dataclass(frozen=True)
class Order:
    """The ordering step.

    Attributes:
        position: of the newest ordered event.
        step: number of the last step.
        holes: ids that may still be committed; `dead`: ids that never will.
        waiting: committed events without a position; `lag_s`: age in seconds of the oldest, 0 without any.
        newest_age_s: seconds since the newest ordered event was recorded; None in an empty ledger.
    """

    position: int
    step: int
    holes: int
    dead: int
    waiting: int
    lag_s: float
    newest_age_s: float | None


@dataclass(frozen=True)
class Seal:
    """The largest checkpoint, and its age in seconds."""

    size: int
    age_s: float


@dataclass(frozen=True)
class Staged:
    """Token rows not packed yet, their bytes, and how many belong to rollouts that have ended."""

    rows: int
    bytes: int
    ended: int


@dataclass(frozen=True)
class Room:
    """Numbers left in the partitions of a table beyond the last that was taken, and the width of one partition."""

    table: str
    reached: int
    left: int
    width: int


@dataclass(frozen=True)
class Sizes:
    """Bytes on the server."""

    database: int
    blobs: int


def order(conn: Connection) -> Order:
    """How far ordering has come."""
    row = conn.execute(_ORDER).fetchone()
    assert row is not None
    return Order(*row)


def seal(conn: Connection) -> Seal | None:
    """How far sealing has come; None before the first checkpoint."""
    row = conn.execute(_SEAL).fetchone()
    return None if row is None else Seal(*row)


def projections(conn: Connection) -> dict[str, int]:
    """Name to position of every read model; 0 for one that was never folded."""
    from ledger.projections import MODELS

    rows = conn.execute("SELECT name, position FROM projection_cursor WHERE shown").fetchall()
    return {**dict.fromkeys(MODELS, 0), **{str(name): int(position) for name, position in rows}}


def staged(conn: Connection) -> Staged:
    """Token rows that wait to be packed."""
    row = conn.execute(_STAGED).fetchone()
    assert row is not None
    return Staged(*row)


def room(conn: Connection) -> list[Room]:
    """What is left in the partitions of each partitioned table."""
    return [Room(*row) for row in conn.execute(_ROOM)]


def sizes(conn: Connection) -> Sizes:
    """Bytes of the database and of the blobs in it."""
    row = conn.execute(_SIZES).fetchone()
    assert row is not None
    return Sizes(*row)


def kinds(conn: Connection, since: int, upto: int) -> dict[str, int]:
    """Kind to number of the events with a position in (`since`, `upto`]."""
    rows = conn.execute(
        "SELECT e.kind, count(*) FROM event_order AS o JOIN event AS e USING (id) WHERE o.position > %s AND o.position <= %s GROUP BY 1",
        (since, upto),
    ).fetchall()
    return {str(kind): int(count) for kind, count in rows}
