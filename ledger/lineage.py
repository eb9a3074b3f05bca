"""Lineage: from a reward back to the sampled tokens, and from anything on to all that came of it. Reads the database; helps to order it."""

from ledger import lineage_graph, lineage_read
from ledger.errors import UnknownId
from ledger.ids import node_id
from ledger.ledger import LedgerHandle
from ledger.lineage_checks import bound_calls, calls_digest
from ledger.lineage_rows import Trace
from ledger.lineage_steps import Chain, assembled

__all__ = ["bound_calls", "calls_digest", "downstream", "trace", "trace_rollout"]


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
    graph = lineage_graph.load(ledger)
    start = graph.number(node_id(ledger.project, node))
    return {} if start is None else graph.by_noun(graph.reached(start))


def _traced(ledger: LedgerHandle, noun: str, ident: str) -> Trace:
    found = lineage_read.read(ledger, noun, ident)
    node = f"{noun}-{ident}"
    if not any(event.stream == node for event in found.events):
        raise UnknownId(f"no {noun} {ident!r} in project {ledger.project!r}")
    return assembled(Chain(node, found))
