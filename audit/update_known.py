"""What the ledger says of the rollouts of a batch as of when it was assembled: outcomes and rewards. Reads the database."""

from collections.abc import Mapping, Sequence

from audit.update_subject import Known
from ledger.attribution_view import AttributionView
from ledger.errors import UnknownId
from ledger.events import BatchAssembled, ReviewDecided, RewardDerived, RolloutEnded, RolloutStarted, VerdictGiven
from ledger.ledger import LedgerHandle
from ledger.order import Recorded as Event
from ledger.outcome import outcome_of, verdict_rank
from ledger.queries_rows import RolloutLine
from ledger.rollout_reading import rollout_lines


def lines_of(ledger: LedgerHandle, rollout_ids: Sequence[str]) -> dict[str, RolloutLine]:
    """Lines of those rollouts that are here; a batch that others recorded may name some that are not."""
    try:
        return rollout_lines(ledger, rollout_ids)
    except UnknownId:
        if len(rollout_ids) == 1:
            return {}
        half = len(rollout_ids) // 2
        return lines_of(ledger, rollout_ids[:half]) | lines_of(ledger, rollout_ids[half:])


def known_rollouts(ledger: LedgerHandle, lines: Mapping[str, RolloutLine], when: int | None, *, rewarded: bool) -> dict[str, Known]:
    """What is known of each rollout; verdicts and rewards that came after position `when` were not known to the batch."""
    ids = list(lines)
    ends: dict[str, dict[str, str]] = {one: {} for one in ids}
    for event in ledger.read_streams([f"rollout-{one}" for one in ids], kinds=["RolloutStarted", "RolloutEnded"]):
        if isinstance(event.body, RolloutStarted | RolloutEnded):
            ends[event.body.rollout_id].setdefault(event.kind, event.event_id)
    about = AttributionView(ledger).about(ids)
    streams = [name for names in about.values() for name in names if rewarded or not name.startswith("reward-")]
    said: dict[str, list[Event]] = {one: [] for one in ids}
    for event in ledger.read_streams(streams, kinds=["VerdictGiven", "ReviewDecided", "RewardDerived"]):
        body = event.body
        if isinstance(body, VerdictGiven | ReviewDecided | RewardDerived) and (when is None or (event.position or 0) <= when):
            said[body.rollout_id].append(event)
    found = {}
    for rollout_id, line in lines.items():
        mine = sorted(said[rollout_id], key=lambda event: event.position or 0)
        verdict_id, status, passed = _counting(mine)
        outcome = outcome_of(line.ended_by, superseded=line.superseded, verdict_status=status, passed=passed)
        found[rollout_id] = Known(
            rollout_id, line.group_id, line.bundle_id, line.rollout_kind, line.slot, line.policy, line.run_id, line.round, line.ended_by,
            line.superseded, outcome, ends[rollout_id].get("RolloutStarted"), ends[rollout_id].get("RolloutEnded"), verdict_id,
            tuple(_rewarded(mine)),
        )  # fmt: skip
    return found


def _counting(events: Sequence[Event]) -> tuple[str | None, str | None, bool | None]:
    """Event id, status and word of the verdict that counts: the newest of the highest rank."""
    best: tuple[int, str, str, bool | None] | None = None
    for event in events:
        body = event.body
        if isinstance(body, ReviewDecided):
            passed = {"passed": True, "failed": False, "unclear": None}[body.decision]
            rank, status = verdict_rank(event.kind, "review", "human", passed), "completed"
        elif isinstance(body, VerdictGiven):
            rank, status, passed = verdict_rank(event.kind, body.role, body.verifier_kind, body.passed), body.status, body.passed
        else:
            continue
        if rank is not None and (best is None or rank >= best[0]):
            best = (rank, event.event_id, status, passed)
    return (None, None, None) if best is None else best[1:]


def rewards_of(ledger: LedgerHandle, told: Sequence[BatchAssembled], known: Mapping[str, Known]) -> dict[str, tuple[str, RewardDerived]]:
    """Reward id to event id and body, of all that the batch names and that are here."""
    held = {body.reward_id: (event_id, body) for one in known.values() for event_id, body in one.rewards}
    wanted = [row.reward_id for part in told for row in part.rows if row.reward_id is not None]
    strange = [f"reward-{one}" for one in wanted if one not in held]
    held |= {body.reward_id: (event_id, body) for event_id, body in _rewarded(ledger.read_streams(strange))}
    return {one: held[one] for one in wanted if one in held}


def _rewarded(events: Sequence[Event]) -> list[tuple[str, RewardDerived]]:
    return [(event.event_id, body) for event in events if isinstance(body := event.body, RewardDerived)]
