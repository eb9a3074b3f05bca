"""Ends the rollouts of sessions whose process is gone. Reads and writes the ledger."""

from contextlib import ExitStack

from ledger.attempts import unfinished
from ledger.errors import LedgerUnavailable, TallyError
from ledger.exclusive import exclusive, unheld
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.token_packing import pack_rollout
from training.rollout.recording import superseded_end


def session_group(rollout_id: str) -> str:
    """Id of the group of one that a session's rollout is in."""
    return derived_id("group", "session", rollout_id)


def session_lock(rollout_id: str) -> str:
    """What a session holds by `exclusive` for as long as its process lives."""
    return f"session of rollout {rollout_id}"


def end_abandoned(ledger: LedgerHandle) -> list[str]:
    """Ids of the session rollouts of the project that were ended now because nobody holds them: their processes died without ending them.

    Such a rollout is `cancelled` and superseded: what it recorded is kept, and it is never counted.

    Raises:
        LedgerUnavailable: the database cannot be reached.
    """
    running = [attempt.rollout_id for attempt in unfinished(ledger) if attempt.group_id == session_group(attempt.rollout_id)]
    ours = {session_lock(rollout_id): rollout_id for rollout_id in running}
    ended = []
    for name in unheld(ledger, list(ours)):
        with ExitStack() as held:
            try:
                held.enter_context(exclusive(ledger, name, wait_s=0.0))
            except LedgerUnavailable:
                raise
            except TallyError:
                # Somebody else ends it.
                continue
            if _end(ledger, ours[name]):
                ended.append(ours[name])
    return ended


def _end(ledger: LedgerHandle, rollout_id: str) -> bool:
    events = ledger.read_stream(f"rollout-{rollout_id}")
    # One without events here is another ledger's, which alone may end it.
    if not events or any(event.kind == "RolloutEnded" for event in events):
        return False
    body = superseded_end(rollout_id, events, "the process of its session went away")
    ledger.append([ledger.new(body, correlation_id=events[0].correlation_id)])
    pack_rollout(ledger, rollout_id)
    return True
