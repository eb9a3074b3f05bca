"""One rollout as audits see it: its events, calls with their tokens, rows, verdicts and rewards, and the texts behind them. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import orjson

from ledger.attribution_view import Evidence
from ledger.bundle import Bundle
from ledger.canonical import parse
from ledger.decoders import Decoder
from ledger.errors import CanonicalError
from ledger.events import (
    BlobRef,
    EventBody,
    GroupDispatched,
    HarnessRegistered,
    HistoryRewritten,
    ModelCallDispatched,
    ModelCalled,
    ReviewDecided,
    RewardDerived,
    RolloutEnded,
    RolloutStarted,
    StateSnapshotted,
    ToolCalled,
    VerdictGiven,
)
from ledger.token_calls import TokenCall
from training.rows import BuiltRows

Body = TypeVar("Body", bound=EventBody)


@dataclass(frozen=True, eq=False)
class SeenCall:
    """One model call.

    Attributes:
        sent, sent_id: the intent and its event; None where only the answer is there.
        answered, answered_id: what came back and its event; None while nothing did.
        tokens: its arrays as far as they match what the event committed to; None where none are stored.
        token_fault: why stored arrays are not what the event committed to; None where they are, or where there are none.
    """

    call_id: str
    sent: ModelCallDispatched | None
    sent_id: str | None
    answered: ModelCalled | None
    answered_id: str | None
    tokens: TokenCall | None = None
    token_fault: str | None = None

    @property
    def event_ids(self) -> tuple[str, ...]:
        """Its events, the intent first."""
        return tuple(name for name in (self.sent_id, self.answered_id) if name is not None)


@dataclass(frozen=True)
class Sibling:
    """Another rollout of the same group.

    Attributes:
        started_id: event of its start.
        ended, superseded: whether it ended, and whether that end is not counted.
        origin: parent rollout and fork step; a pair of None where it began at the task's initial state.
        state, state_id: digest of its state at step 0 and the event that says so; None where that was not recorded.
        sampled: commitment to the sampled ids of each call in order of dispatch; None where a call has none.
    """

    rollout_id: str
    slot: int
    attempt: int
    started_id: str
    ended: bool = False
    superseded: bool = False
    origin: tuple[str | None, int | None] = (None, None)
    state: str | None = None
    state_id: str | None = None
    sampled: tuple[str, ...] | None = None

    @property
    def counts(self) -> bool:
        """Whether it may speak for its slot."""
        return self.ended and not self.superseded


@dataclass(frozen=True, eq=False)
class RolloutSubject:
    """One rollout with everything that was said about it, without positions and without labels of planted faults.

    Attributes:
        rollout_id: which.
        own: the events of its stream, by version.
        group: as it was dispatched; None where it was not dispatched here.
        bundle: the task; None where it was never sealed here.
        verdicts, rewards, reviews: events about it, oldest first.
        calls: model calls in the order of dispatch.
        built: its training rows.
        others: ids of other attempts at its slot, by attempt number.
        bytes_of: reads a blob; raises a BlobError where it cannot be read.
        heard: verdicts, rewards and reviews together, oldest first.
        siblings: the other rollouts of its group, by slot and attempt.
        harness: with which its task was sealed; None where it was not registered here.
        decode: text of token ids of a model version; None where no tokenizer is at hand.
    """

    rollout_id: str
    own: tuple[Evidence, ...]
    group: Evidence | None
    bundle: Bundle | None
    verdicts: tuple[Evidence, ...]
    rewards: tuple[Evidence, ...]
    reviews: tuple[Evidence, ...]
    calls: tuple[SeenCall, ...]
    built: BuiltRows
    others: tuple[str, ...]
    bytes_of: Callable[[str], bytes] = field(repr=False)
    heard: tuple[Evidence, ...] = ()
    siblings: tuple[Sibling, ...] = ()
    harness: HarnessRegistered | None = None
    decode: Decoder | None = field(default=None, repr=False)

    @property
    def subject(self) -> str:
        """The rollout's stream."""
        return f"rollout-{self.rollout_id}"

    @cached_property
    def _bodies(self) -> tuple[tuple[str, EventBody], ...]:
        return tuple((event.event_id, event.body) for event in self.own)

    def events(self, kind: type[Body]) -> tuple[tuple[str, Body], ...]:
        """Event id and body of each event of a kind in the rollout's stream, in order."""
        return tuple((event_id, body) for event_id, body in self._bodies if isinstance(body, kind))

    @cached_property
    def started(self) -> RolloutStarted:
        """Its first event."""
        return self.events(RolloutStarted)[0][1]

    @cached_property
    def ended(self) -> tuple[str, RolloutEnded] | None:
        """Event id and body of its end; None while it runs."""
        return next(iter(self.events(RolloutEnded)), None)

    @cached_property
    def tools(self) -> tuple[tuple[str, ToolCalled], ...]:
        """Its tool calls by index."""
        return tuple(sorted(self.events(ToolCalled), key=lambda item: item[1].index))

    @cached_property
    def snapshots(self) -> tuple[tuple[str, StateSnapshotted], ...]:
        """Its states by step."""
        return tuple(sorted(self.events(StateSnapshotted), key=lambda item: item[1].step))

    @cached_property
    def rewrites(self) -> tuple[tuple[str, HistoryRewritten], ...]:
        """Where its history was rewritten."""
        return self.events(HistoryRewritten)

    @cached_property
    def dispatched(self) -> GroupDispatched | None:
        """The body of its group."""
        body = None if self.group is None else self.group.body
        return body if isinstance(body, GroupDispatched) else None

    @cached_property
    def judged(self) -> tuple[tuple[str, VerdictGiven], ...]:
        """Its verdicts, oldest first."""
        return _bodies(self.verdicts, VerdictGiven)

    @cached_property
    def rewarded(self) -> tuple[tuple[str, RewardDerived], ...]:
        """Its rewards, oldest first."""
        return _bodies(self.rewards, RewardDerived)

    @cached_property
    def reviewed(self) -> tuple[tuple[str, ReviewDecided], ...]:
        """People's decisions on it, oldest first."""
        return _bodies(self.reviews, ReviewDecided)

    def text(self, ref: BlobRef) -> str:
        """The text of a blob; bytes that are no UTF-8 are shown as escapes."""
        return self.bytes_of(ref.blob_id).decode("utf-8", "backslashreplace")

    def json(self, ref: BlobRef) -> Any:
        """The JSON of a blob, or None where it is none."""
        try:
            return parse(self.bytes_of(ref.blob_id))
        except CanonicalError:
            return None

    def request(self, call: SeenCall) -> Mapping[str, Any]:
        """The request of a call as it was sent; empty where it is no JSON object."""
        return {} if call.sent is None else self._object(call.sent.request)

    def answer(self, call: SeenCall) -> Mapping[str, Any]:
        """The response of a call as it came; empty where there is none or it is no JSON object."""
        return {} if call.answered is None or call.answered.response is None else self._object(call.answered.response)

    # Several checks read the same answers, and parsing them is what costs.
    @cached_property
    def _objects(self) -> dict[str, Mapping[str, Any]]:
        return {}

    def _object(self, ref: BlobRef) -> Mapping[str, Any]:
        if ref.blob_id not in self._objects:
            found = _loaded(self.bytes_of(ref.blob_id))
            self._objects[ref.blob_id] = found if isinstance(found, Mapping) else {}
        return self._objects[ref.blob_id]


def _bodies(events: tuple[Evidence, ...], kind: type[Body]) -> tuple[tuple[str, Body], ...]:
    return tuple((event.event_id, body) for event in events if isinstance(body := event.body, kind))


def _loaded(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
