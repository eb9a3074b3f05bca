"""Lineage: from a reward back to the sampled tokens, and from anything on to all that came of it. Reads the database; helps to order it."""

from dataclasses import fields

from ledger.errors import UnknownId
from ledger.ids import node_id
from ledger.ledger import LedgerHandle
from ledger.lineage_checks import bound_calls, calls_digest
from ledger.lineage_rows import Trace
from ledger.lineage_steps import Chain, assembled
from ledger.order import Recorded, recorded

__all__ = ["bound_calls", "calls_digest", "downstream", "trace", "trace_rollout"]

# Around a rollout: what it is made of, what judged it, what was derived for it. From each of these all ancestors.
_CHAIN = """WITH RECURSIVE
start (node) AS (
  SELECT %(node)s::bigint UNION SELECT parent FROM edge WHERE child = %(node)s AND relation = 'rewards'),
around (node) AS (
  SELECT node FROM start
  UNION
  SELECT x.child FROM start JOIN edge AS x ON x.parent = start.node AND x.relation IN ('made_in', 'judges', 'reviews', 'rewards')),
up (node) AS (
  SELECT node FROM around
  UNION
  SELECT x.parent FROM up JOIN edge AS x ON x.child = up.node)
SELECT node FROM up"""
_DOWN = """WITH RECURSIVE down (node) AS (
  SELECT %(node)s::bigint
  UNION
  SELECT x.child FROM down JOIN edge AS x ON x.parent = down.node)
SELECT split_part(n.name, '-', 1), count(*) FROM down JOIN node AS n ON n.node_id = down.node WHERE down.node <> %(node)s
GROUP BY 1 ORDER BY 1"""
_COLUMNS = ", ".join("body" if column.name == "body_bytes" else column.name for column in fields(Recorded))


def trace(ledger: LedgerHandle, reward_id: str) -> Trace:
    """The whole chain of a reward: verdicts, rollout, model calls to their tokens, tool calls, task and models, each part checked.

    A blob or a hash that does not fit is a failed check in the trace, never an exception.

    Raises:
        UnknownId: no such reward.
    """
    return _traced(ledger, "reward", reward_id)


def trace_rollout(ledger: LedgerHandle, rollout_id: str) -> Trace:
    """The whole chain of a rollout, as `trace` without one reward in particular.

    Raises:
        UnknownId: no such rollout.
    """
    return _traced(ledger, "rollout", rollout_id)


def downstream(ledger: LedgerHandle, node: str) -> dict[str, int]:
    """Noun to number of everything that came from `node`, directly or not.

    Args:
        node: `<noun>-<id>`, such as `verifier-<digest>`.
    """
    with ledger.connection() as conn:
        rows = conn.execute(_DOWN, {"node": node_id(ledger.project, node)}).fetchall()
    return {str(noun): int(number) for noun, number in rows}


def _traced(ledger: LedgerHandle, noun: str, ident: str) -> Trace:
    ledger.barrier()
    node = f"{noun}-{ident}"
    with ledger.connection() as conn:
        rows = conn.execute(
            f"SELECT {_COLUMNS} FROM ordered_event WHERE node_id IN ({_CHAIN}) ORDER BY position", {"node": node_id(ledger.project, node)}
        ).fetchall()
        chain = Chain(node, [recorded(row) for row in rows])
        if not any(event.stream == node for event in chain.events):
            raise UnknownId(f"no {noun} {ident!r} in project {ledger.project!r}")
        chain.fetch(conn)
    return assembled(chain)
