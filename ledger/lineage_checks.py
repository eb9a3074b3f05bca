"""Checks of a chain of events: hashes, ids, blobs, token arrays and bound calls, each derived again. Pure."""

from collections.abc import Collection, Mapping, Sequence

from ledger import ids
from ledger.canonical import digest
from ledger.events import EventBody, ModelCallDispatched, ModelCalled, RewardDerived, RolloutEnded
from ledger.lineage_rows import Check
from ledger.lineage_tokens import CallTokens, arrays
from ledger.order import Recorded
from ledger.proof import LeafFields, leaf_hash
from ledger.store import stamp

__all__ = ["arrays", "bound_calls", "calls_digest", "checked", "event_fault"]


def calls_digest(call_ids: Sequence[str]) -> str:
    """Hex SHA-256 with which the end of a rollout binds its model calls.

    Args:
        call_ids: by index, as `bound_calls` gives them.
    """
    return digest(list(call_ids))


def bound_calls(events: Sequence[Recorded]) -> list[str]:
    """Ids of the model calls in a rollout's stream by index, answered or not; its end binds the first `model_calls` of them."""
    index_of: dict[str, int] = {}
    for event in events:
        body = event.body if event.kind in ("ModelCallDispatched", "ModelCalled") else None
        if isinstance(body, ModelCallDispatched | ModelCalled):
            index_of.setdefault(body.call_id, body.index)
    return sorted(index_of, key=lambda call_id: (index_of[call_id], call_id))


def event_fault(event: Recorded) -> str | None:
    """What does not fit when an event's id and leaf are derived again from its fields and body; None when both do."""
    if ids.event_id(event.ledger_id, event.project, event.stream, event.key) != event.event_id:
        return "its event id does not follow from its ledger, project, stream and key"
    leaf = leaf_hash(
        LeafFields(
            ledger_id=event.ledger_id, event_id=event.event_id, project=event.project, stream=event.stream, version=event.version,
            kind=event.kind, schema_version=event.schema_version, canonicaliser=event.canonicaliser, occurred_at=stamp(event.occurred_at),
            actor_id=event.actor_id, correlation_id=event.correlation_id, causation_id=event.causation_id, key=event.key,
            body_hash=event.body_hash,
        )
    )  # fmt: skip
    return None if leaf == event.leaf else "its leaf does not match its fields and body"


def checked(
    chain: Sequence[tuple[Recorded, EventBody]], stream: str, *, blobs: int, tokens: Mapping[str, CallTokens],
    token_faults: Sequence[str], broken: tuple[Sequence[str], Sequence[str]], shredded: Collection[str] = (),
    withheld: Collection[str] = (),
) -> tuple[Check, ...]:  # fmt: skip
    """The checks of a chain.

    Args:
        chain: events with their bodies, in position order.
        stream: of the rollout.
        blobs: number of blobs that could be read.
        tokens: call id to its tokens.
        token_faults: what does not fit in the stored tokens of the stream.
        broken: what was wrong with each event and each blob that could not be read.
        shredded: ids of blobs whose subject was shredded.
        withheld: ids of blobs whose key stayed with another ledger.
    """
    events, bodies = [event for event, _ in chain], [body for _, body in chain]
    bad_events = [*broken[0]] + [f"position {e.position} {e.kind}: {fault}" for e in events if (fault := event_fault(e))]
    calls = [body for body in bodies if isinstance(body, ModelCalled)]
    bad_tokens = [*token_faults] + [f"call {call.index}: {fault}" for call in calls for fault in tokens[call.call_id].faults]
    unchecked = f"; {len(shredded)} are shredded and stand by their commitment alone" if shredded else ""
    if withheld:
        unchecked += f"; the keys of {len(withheld)} stayed with another ledger"
    checked_arrays = sum(tokens[call.call_id].checked for call in calls)
    checks = [
        _check("events", bad_events, f"{len(events)} events: id and leaf derived again"),
        _check("blobs", broken[1], f"{blobs} blobs match the commitments in the events{unchecked}"),
        _check("tokens", bad_tokens, f"{checked_arrays} token arrays match their commitments and reported counts"),
    ]
    own = [event for event in events if event.stream == stream]
    ends = [body for body in bodies if isinstance(body, RolloutEnded)]
    if ends:
        bound = bound_calls(own)[: ends[0].model_calls]
        wrong = [] if calls_digest(bound) == ends[0].calls_digest else [f"the end binds {ends[0].model_calls} calls, other than those here"]
        checks.append(_check("bound calls", wrong, f"the end binds exactly these {len(bound)} model calls"))
    given = {event.stream for event in events if event.kind == "VerdictGiven"}
    named = [verdict for body in bodies if isinstance(body, RewardDerived) for verdict in body.verdict_ids]
    gone = [f"verdict {verdict} is named by a reward and is not here" for verdict in named if f"verdict-{verdict}" not in given]
    checks.append(_check("derivation", gone, f"{len(named)} verdicts that rewards were derived from are here"))
    return tuple(checks)


def _check(name: str, faults: Sequence[str], fine: str) -> Check:
    return Check(name, not faults, fine if not faults else "; ".join(faults))
