"""All that training reads of many rollouts, by a few statements: outcomes, events, tokens, rewards, provenance. Reads the database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ledger import blobs
from ledger.arrays import Bigints
from ledger.canonical import parse
from ledger.errors import TokenError, UnknownId
from ledger.events import BundleSealed, RewardDerived
from ledger.ids import node_id
from ledger.ledger import LedgerHandle
from ledger.order import Recorded
from ledger.queries_lines import ROLLOUT, ROLLOUTS, rollout_line
from ledger.queries_rows import RolloutLine
from ledger.token_reading import Tokens, examine_tokens

KINDS = (
    "RolloutStarted", "ModelCallDispatched", "ModelCalled", "ToolCalled", "StateSnapshotted", "HistoryRewritten", "RolloutEnded"
)  # fmt: skip
_LINES = f"SELECT {ROLLOUT} FROM {ROLLOUTS} WHERE r.project = %s AND r.rollout_id = ANY (%s)"
_STREAMS = "SELECT stream_id FROM stream_head WHERE node_id = ANY (%s) ORDER BY 1"
_REWARDS = (
    "SELECT DISTINCT ON (rollout_id) reward_id FROM reward_view WHERE project = %s AND rollout_id = ANY (%s)"
    " AND rule = coalesce(%s, rule) ORDER BY rollout_id, position DESC"
)


@dataclass(frozen=True)
class RolloutsRead:
    """What the ledger holds of some rollouts.

    Attributes:
        lines: rollout id to its line of the read model, in the order that was asked for.
        events: rollout id to its events by position, of `KINDS`.
        tokens: of all model calls, by event id.
        rewards: rollout id to the newest reward of the rule; one without a reward is absent.
        provenance: bundle id to what its proposer said of its origin; a bundle that was never sealed here is absent.
    """

    lines: dict[str, RolloutLine]
    events: dict[str, list[Recorded]]
    tokens: Tokens
    rewards: dict[str, RewardDerived] = field(default_factory=dict)
    provenance: dict[str, Mapping[str, Any]] = field(default_factory=dict)


def read_rollouts(ledger: LedgerHandle, rollout_ids: Sequence[str], *, rule: str | None = None) -> RolloutsRead:
    """What was ordered and folded of these rollouts when the call began; the caller brings both up to date where that matters.

    Args:
        rollout_ids: each once.
        rule: of the rewards, by name; None for the newest of any rule.
    Raises:
        UnknownId: a rollout is not there, or is named twice.
        TokenError: stored tokens are damaged or not what their events committed to.
    """
    lines = rollout_lines(ledger, rollout_ids)
    streams = {f"rollout-{rollout_id}": rollout_id for rollout_id in rollout_ids}
    events: dict[str, list[Recorded]] = {rollout_id: [] for rollout_id in rollout_ids}
    for event in ledger.read_streams(list(streams), kinds=KINDS):
        events[streams[event.stream]].append(event)
    nodes = Bigints(node_id(ledger.project, stream) for stream in streams)
    with ledger.connection() as conn:
        numbers = [int(row[0]) for row in conn.execute(_STREAMS, (nodes,))]
        tokens = examine_tokens(conn, numbers, ordered=not ledger.rights.appends) if numbers else Tokens()
        reward_ids = [str(row[0]) for row in conn.execute(_REWARDS, (ledger.project, list(rollout_ids), rule))]
    for event_id, fault in tokens.faults:
        raise TokenError(f"event {event_id}: {fault}" if event_id is not None else fault)
    return RolloutsRead(lines, events, tokens, _rewards(ledger, reward_ids), _provenance(ledger, lines))


def rollout_lines(ledger: LedgerHandle, rollout_ids: Sequence[str]) -> dict[str, RolloutLine]:
    """Rollout id to its line of the read model, in the order that was asked for.

    Raises:
        UnknownId: a rollout is not there, or is named twice.
    """
    with ledger.connection() as conn:
        found = {line.rollout_id: line for line in map(rollout_line, conn.execute(_LINES, (ledger.project, list(rollout_ids))))}
    missing = [rollout_id for rollout_id in rollout_ids if rollout_id not in found]
    if missing:
        raise UnknownId(f"no rollout {missing[0]!r} in project {ledger.project!r}; {len(missing)} of {len(rollout_ids)} are not there")
    if len(found) < len(rollout_ids):
        twice = next(rollout_id for n, rollout_id in enumerate(rollout_ids) if rollout_id in rollout_ids[:n])
        raise UnknownId(f"rollout {twice!r} is named twice; allowed: each once")
    return {rollout_id: found[rollout_id] for rollout_id in rollout_ids}


def _rewards(ledger: LedgerHandle, reward_ids: Sequence[str]) -> dict[str, RewardDerived]:
    events = ledger.read_streams([f"reward-{reward_id}" for reward_id in reward_ids], kinds=["RewardDerived"])
    bodies = [body for event in events if isinstance(body := event.body, RewardDerived)]
    return {body.rollout_id: body for body in bodies}


def _provenance(ledger: LedgerHandle, lines: Mapping[str, RolloutLine]) -> dict[str, Mapping[str, Any]]:
    bundles = sorted({line.bundle_id for line in lines.values()})
    events = ledger.read_streams([f"bundle-{bundle_id}" for bundle_id in bundles], kinds=["BundleSealed"])
    named = {body.bundle_id: body.provenance.blob_id for event in events if isinstance(body := event.body, BundleSealed)}
    with ledger.connection() as conn:
        data = blobs.read_many(conn, sorted(set(named.values()))) if named else {}
    return {bundle_id: parse(data[blob_id]) for bundle_id, blob_id in named.items()}
