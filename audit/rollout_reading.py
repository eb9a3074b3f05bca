"""Many rollouts read as subjects of audits, by a few statements, without positions and without labels. Reads the database."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from audit.rollout_subject import RolloutSubject, SeenCall
from ledger.attempts import attempts
from ledger.attribution_view import AttributionView, Evidence
from ledger.bundle import Bundle
from ledger.errors import UnknownId
from ledger.events import BlobRef, ModelCallDispatched, ModelCalled, RolloutStarted, ToolCalled
from ledger.ledger import LedgerHandle
from ledger.queries import fresh
from ledger.token_reading import Tokens
from training.bundles import load
from training.captured import captured_calls
from training.row_builder import build_rows

BATCH = 200
"""Rollouts that are held at a time."""


def read_subjects(ledger: LedgerHandle, rollout_ids: Sequence[str]) -> Iterator[RolloutSubject]:
    """The rollouts in the order of the ids, as of everything committed before the call; no more than `BATCH` are held at a time.

    Raises:
        UnknownId: a rollout is not there.
    """
    fresh(ledger)
    view = AttributionView(ledger)
    bundles: dict[str, Bundle | None] = {}
    for at in range(0, len(rollout_ids), BATCH):
        yield from _page(ledger, view, rollout_ids[at : at + BATCH], bundles)


def _page(
    ledger: LedgerHandle, view: AttributionView, ids: Sequence[str], bundles: dict[str, Bundle | None]
) -> Iterator[RolloutSubject]:  # fmt: skip
    own = {name.removeprefix("rollout-"): events for name, events in view.streams([f"rollout-{one}" for one in ids]).items()}
    started = {rollout_id: _started(ledger, rollout_id, events) for rollout_id, events in own.items()}
    groups = view.streams(sorted({f"group-{body.group_id}" for body in started.values()}))
    about = view.about(ids)
    said = view.streams(sorted({name for names in about.values() for name in names}))
    slots: dict[tuple[str, int], list[str]] = {}
    for attempt in attempts(ledger, sorted({body.group_id for body in started.values()})):
        slots.setdefault((attempt.group_id, attempt.slot), []).append(attempt.rollout_id)
    tokens, bytes_of = view.tokens(ids), _reader(view, own)
    for rollout_id in ids:
        events, body = own[rollout_id], started[rollout_id]
        if body.bundle_id not in bundles:
            bundles[body.bundle_id] = _bundle(ledger, body.bundle_id)
        heard = [event for name in about[rollout_id] for event in said[name]]
        yield RolloutSubject(
            rollout_id=rollout_id, own=tuple(events), group=next(iter(groups[f"group-{body.group_id}"]), None),
            bundle=bundles[body.bundle_id], verdicts=_of(heard, "VerdictGiven"), rewards=_of(heard, "RewardDerived"),
            reviews=_of(heard, "ReviewDecided"), calls=_calls(events, tokens),
            built=build_rows(rollout_id, captured_calls(events, tokens).calls),
            others=tuple(other for other in slots.get((body.group_id, body.slot), ()) if other != rollout_id), bytes_of=bytes_of,
        )  # fmt: skip


def _of(events: Sequence[Evidence], kind: str) -> tuple[Evidence, ...]:
    return tuple(event for event in events if event.kind == kind)


def _started(ledger: LedgerHandle, rollout_id: str, events: Sequence[Evidence]) -> RolloutStarted:
    for event in events:
        if event.kind == "RolloutStarted":
            body = event.body
            assert isinstance(body, RolloutStarted)
            return body
    raise UnknownId(f"no rollout {rollout_id!r} in project {ledger.project!r}")


def _bundle(ledger: LedgerHandle, bundle_id: str) -> Bundle | None:
    try:
        return load(ledger, bundle_id)
    except UnknownId:
        return None


def _calls(events: Sequence[Evidence], tokens: Tokens) -> tuple[SeenCall, ...]:
    sent: dict[str, tuple[str, ModelCallDispatched]] = {}
    answered: dict[str, tuple[str, ModelCalled]] = {}
    faults = {event_id: fault for event_id, fault in tokens.faults if event_id is not None}
    for event in events:
        if event.kind == "ModelCallDispatched" and isinstance(intent := event.body, ModelCallDispatched):
            sent[intent.call_id] = (event.event_id, intent)
        elif event.kind == "ModelCalled" and isinstance(called := event.body, ModelCalled):
            answered[called.call_id] = (event.event_id, called)
    found = []
    for call_id in dict.fromkeys([*sent, *answered]):
        asked_id, asked = sent.get(call_id, (None, None))
        given_id, given = answered.get(call_id, (None, None))
        held = None if given_id is None else tokens.calls.get(given_id)
        found.append(SeenCall(call_id, asked, asked_id, given, given_id, held, None if given_id is None else faults.get(given_id)))
    return tuple(sorted(found, key=lambda call: (_index(call), call.call_id)))


def _index(call: SeenCall) -> int:
    body = call.answered if call.sent is None else call.sent
    assert body is not None
    return body.index


def _reader(view: AttributionView, own: Mapping[str, Sequence[Evidence]]) -> Callable[[str], bytes]:
    """Reads blobs: those of tool calls and of answers together when the first is asked for, requests, which are long, one by one."""
    held: dict[str, bytes] = {}
    waiting = [own]

    def bytes_of(blob_id: str) -> bytes:
        if waiting:
            bodies = [event.body for events in waiting.pop().values() for event in events if event.kind in ("ToolCalled", "ModelCalled")]
            refs = [ref for body in bodies for ref in _texts(body)]
            held.update(view.blobs([ref.blob_id for ref in refs]))
        return held[blob_id] if blob_id in held else view.blob(blob_id)

    return bytes_of


def _texts(body: object) -> list[BlobRef]:
    if isinstance(body, ToolCalled):
        return [ref for ref in (body.name, body.arguments_sampled, body.arguments_parsed, body.result) if ref is not None]
    return [body.response] if isinstance(body, ModelCalled) and body.response is not None else []
