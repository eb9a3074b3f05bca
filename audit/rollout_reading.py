"""Many rollouts read as subjects of audits, by a few statements, without positions and without labels. Reads the database."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from audit.rollout_subject import RolloutSubject, SeenCall, Sibling
from ledger.attempts import attempts
from ledger.attribution_view import AttributionView, Evidence
from ledger.bundle import Bundle
from ledger.decoders import Decoder
from ledger.errors import UnknownId
from ledger.events import (
    BlobRef,
    HarnessRegistered,
    ModelCallDispatched,
    ModelCalled,
    RolloutEnded,
    RolloutStarted,
    StateSnapshotted,
    ToolCalled,
)
from ledger.ledger import LedgerHandle
from ledger.queries import fresh
from ledger.token_reading import Tokens
from training.bundles import load
from training.captured import captured_calls
from training.row_builder import build_rows

BATCH = 200
"""Rollouts that are held at a time."""
_REQUESTS = 4 << 20
_WITH_TEXTS = ("ToolCalled", "ModelCalled", "ModelCallDispatched")


def read_subjects(ledger: LedgerHandle, rollout_ids: Sequence[str], *, decode: Decoder | None = None) -> Iterator[RolloutSubject]:
    """The rollouts in the order of the ids, as of everything committed before the call; no more than `BATCH` are held at a time.

    It reads the least when rollouts of one group stand together.

    Args:
        decode: text of token ids, where a tokenizer is at hand.
    Raises:
        UnknownId: a rollout is not there.
    """
    fresh(ledger)
    reading = _Reading(ledger, AttributionView(ledger), decode, {}, {})
    for at in range(0, len(rollout_ids), BATCH):
        yield from _page(reading, rollout_ids[at : at + BATCH])


@dataclass(frozen=True)
class _Reading:
    """What stays the same from page to page: the view, and tasks and harnesses that were read before."""

    ledger: LedgerHandle
    view: AttributionView
    decode: Decoder | None
    bundles: dict[str, Bundle | None]
    harnesses: dict[str, HarnessRegistered | None]

    def bundle(self, bundle_id: str) -> Bundle | None:
        if bundle_id not in self.bundles:
            self.bundles[bundle_id] = _bundle(self.ledger, bundle_id)
        return self.bundles[bundle_id]

    def harness(self, bundle: Bundle | None) -> HarnessRegistered | None:
        if bundle is None:
            return None
        if bundle.harness_id not in self.harnesses:
            bodies = [event.body for event in self.view.stream(f"harness-{bundle.harness_id}")]
            self.harnesses[bundle.harness_id] = next((body for body in bodies if isinstance(body, HarnessRegistered)), None)
        return self.harnesses[bundle.harness_id]


def _page(reading: _Reading, ids: Sequence[str]) -> Iterator[RolloutSubject]:
    ledger, view = reading.ledger, reading.view
    own = _own(view, ids)
    started = {rollout_id: _started(ledger, rollout_id, events)[1] for rollout_id, events in own.items()}
    groups = view.streams(sorted({f"group-{body.group_id}" for body in started.values()}))
    about = view.about(ids)
    said = view.streams(sorted({name for names in about.values() for name in names}))
    members: dict[str, list[str]] = {}
    for attempt in attempts(ledger, sorted({body.group_id for body in started.values()})):
        members.setdefault(attempt.group_id, []).append(attempt.rollout_id)
    beside = _own(view, sorted({one for group in members.values() for one in group} - own.keys()))
    siblings = {one: _sibling(ledger, one, events) for one, events in (own | beside).items()}
    tokens, bytes_of = view.tokens(ids), _reader(view, own)
    for rollout_id in ids:
        events, body = own[rollout_id], started[rollout_id]
        bundle = reading.bundle(body.bundle_id)
        heard = [event for name in about[rollout_id] for event in said[name]]
        group = tuple(siblings[one] for one in members.get(body.group_id, ()) if one != rollout_id)
        yield RolloutSubject(
            rollout_id=rollout_id, own=tuple(events), group=next(iter(groups[f"group-{body.group_id}"]), None), bundle=bundle,
            verdicts=_of(heard, "VerdictGiven"), rewards=_of(heard, "RewardDerived"), reviews=_of(heard, "ReviewDecided"),
            calls=_calls(events, tokens), built=build_rows(rollout_id, captured_calls(events, tokens).calls),
            others=tuple(one.rollout_id for one in group if one.slot == body.slot), bytes_of=bytes_of, heard=tuple(heard),
            siblings=group, harness=reading.harness(bundle), decode=reading.decode,
        )  # fmt: skip


def _own(view: AttributionView, ids: Sequence[str]) -> dict[str, list[Evidence]]:
    return {name.removeprefix("rollout-"): events for name, events in view.streams([f"rollout-{one}" for one in ids]).items()}


def _of(events: Sequence[Evidence], kind: str) -> tuple[Evidence, ...]:
    return tuple(event for event in events if event.kind == kind)


def _sibling(ledger: LedgerHandle, rollout_id: str, events: Sequence[Evidence]) -> Sibling:
    started_id, start = _started(ledger, rollout_id, events)
    ended, state, state_id = None, None, None
    sampled: list[tuple[int, str | None]] = []
    for event in events:
        if event.kind == "StateSnapshotted" and state is None and isinstance(event.body, StateSnapshotted) and event.body.step == 0:
            state, state_id = event.body.state, event.event_id
        elif event.kind == "ModelCalled" and isinstance(called := event.body, ModelCalled):
            sampled.append((called.index, None if called.sampled_ids is None else called.sampled_ids.commitment))
        elif event.kind == "RolloutEnded" and isinstance(event.body, RolloutEnded):
            ended = event.body
    known = [held for _, held in sorted(sampled, key=lambda item: item[0]) if held is not None]
    return Sibling(
        rollout_id, start.slot, start.attempt, started_id, ended is not None, ended is not None and ended.superseded,
        (start.parent_rollout_id, start.fork_step), state, state_id, tuple(known) if known and len(known) == len(sampled) else None,
    )  # fmt: skip


def _started(ledger: LedgerHandle, rollout_id: str, events: Sequence[Evidence]) -> tuple[str, RolloutStarted]:
    for event in events:
        if event.kind == "RolloutStarted":
            body = event.body
            assert isinstance(body, RolloutStarted)
            return event.event_id, body
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
    """Reads blobs: those of tool calls and of answers together when the first is asked for, requests, which are long, some at a time."""
    held: dict[str, bytes] = {}
    asked: dict[str, bytes] = {}
    beside: dict[str, list[str]] = {}

    def bytes_of(blob_id: str) -> bytes:
        if not beside:
            bodies = [event.body for events in own.values() for event in events if event.kind in _WITH_TEXTS]
            held.update(view.blobs([ref.blob_id for body in bodies for ref in _texts(body)]))
            beside.update(_together([body.request for body in bodies if isinstance(body, ModelCallDispatched)]))
        if blob_id in held:
            return held[blob_id]
        if blob_id in beside and blob_id not in asked:
            asked.clear()
            asked.update(view.blobs(beside[blob_id]))
        return asked[blob_id] if blob_id in asked else view.blob(blob_id)

    return bytes_of


def _together(requests: Sequence[BlobRef]) -> dict[str, list[str]]:
    """Blob to those with which it is read, no more than `_REQUESTS` bytes unless one alone has more."""
    found: dict[str, list[str]] = {"": []}
    some: list[str] = []
    size = 0
    for ref in requests:
        if size + ref.size > _REQUESTS:
            some, size = [], 0
        some.append(ref.blob_id)
        size += ref.size
        found[ref.blob_id] = some
    return found


def _texts(body: object) -> list[BlobRef]:
    if isinstance(body, ToolCalled):
        return [ref for ref in (body.name, body.arguments_sampled, body.arguments_parsed, body.result) if ref is not None]
    return [body.response] if isinstance(body, ModelCalled) and body.response is not None else []
