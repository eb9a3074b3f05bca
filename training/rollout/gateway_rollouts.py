"""Rollouts as the gateway sees them: open or closed, their calls, and which call a client's retry means. Reads the ledger."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from ledger.errors import IdempotencyConflict, UnknownId
from ledger.events import BlobRef, ModelCallDispatched, ModelCalled, RolloutEnded, RolloutStarted
from ledger.ledger import LedgerHandle
from ledger.order import read_all
from training.rollout.gateway_request import Answer
from training.rollout.gateway_upstream import IDENTIFIER

KEPT_CALLS = 256
KEPT_IDLE_ROLLOUTS = 4096
KEPT_CLOSED = 65536

CallStatus = Literal["in_flight", "completed", "failed"]


@dataclass(slots=True)
class CallEntry:
    """What is remembered of a call, so that a retry of it can be told from a new call.

    Attributes:
        status: failed also means: no answer was ever recorded (a dangling intent).
        delivered: the client was sent the whole answer.
        resolved: a retry of it was answered already, by replay or by a new call.
        listeners: requests that wait for its answer.
    """

    call_id: str
    index: int
    digest: str
    retry_key: str | None
    added: tuple[str, ...] = ()
    status: CallStatus = "in_flight"
    response: BlobRef | None = None
    delivered: bool = False
    resolved: bool = False
    listeners: int = 0
    task: "asyncio.Task[Answer] | None" = None


@dataclass(frozen=True)
class RolloutCalls:
    """The calls of a rollout.

    Attributes:
        call_ids: by index, which is dispatch order; calls in flight included.
        in_flight: how many have no recorded answer yet.
        sampling_s: sum of the upstream latencies of the calls that this gateway finished.
    """

    call_ids: tuple[str, ...] = ()
    in_flight: int = 0
    sampling_s: float = 0.0


@dataclass(slots=True)
class RolloutEntry:
    """One rollout's calls while it is open."""

    rollout_id: str
    attempt: int
    participant: str
    closed: bool = False
    call_ids: dict[str, None] = field(default_factory=dict)
    next_index: int = 0
    in_flight: int = 0
    sampling_s: float = 0.0
    recent: "OrderedDict[str, CallEntry]" = field(default_factory=OrderedDict)
    truncated: bool = False
    refused: "OrderedDict[str, int]" = field(default_factory=OrderedDict)

    def refuse(self, digest: str) -> None:
        """Remember that a request was turned away before it became a call: its retry is a new call."""
        self.refused[digest] = self.refused.get(digest, 0) + 1
        if len(self.refused) > KEPT_CALLS:
            self.refused.popitem(last=False)

    def begin(self, call_id: str, digest: str, retry_key: str | None) -> CallEntry:
        """The entry of a new call, with the next index."""
        entry = CallEntry(call_id, self.next_index, digest, retry_key)
        self.call_ids[call_id] = None
        self.next_index += 1
        self.in_flight += 1
        self.remember(entry)
        return entry

    def withdraw(self, entry: CallEntry) -> None:
        """Forget a call whose intent could not be written: it was never made."""
        self.call_ids.pop(entry.call_id, None)
        self.recent.pop(entry.call_id, None)

    def remember(self, entry: CallEntry) -> None:
        """Keep a call for retries, and let go of the oldest one that is not in flight when there are too many."""
        self.recent[entry.call_id] = entry
        if len(self.recent) > KEPT_CALLS:
            oldest = next((known.call_id for known in self.recent.values() if known.status != "in_flight"), None)
            if oldest is not None:
                del self.recent[oldest]
                self.truncated = True

    def summary(self) -> RolloutCalls:
        """The calls so far."""
        return RolloutCalls(tuple(self.call_ids), self.in_flight, self.sampling_s)

    def meant_by(self, digest: str, retry_key: str | None, *, retried: bool) -> CallEntry | None:
        """The call that a request repeats, or None when it is a new one.

        A client's key decides alone. Without one, only a request that says it is a retry repeats anything: the newest call of the same
        content whose answer the client cannot have (failed, dangling, abandoned, undelivered), else nothing if such a request was turned
        away before, else one in flight, else the newest.

        Raises:
            IdempotencyConflict: the key was used for other content.
        """
        if retry_key is not None:
            same_key = [entry for entry in self.recent.values() if entry.retry_key == retry_key]
            if any(entry.digest != digest for entry in same_key):
                raise IdempotencyConflict("Idempotency-Key was used before with another request; the same key needs the same request")
            return max(same_key, key=lambda entry: entry.index, default=None)
        if not retried:
            return None
        same = [entry for entry in self.recent.values() if entry.digest == digest and entry.retry_key is None]
        found = max(same, key=lambda entry: (_openness(entry), entry.index), default=None)
        if self.refused.get(digest, 0) and (found is None or _openness(found) < 2):
            self.refused[digest] -= 1
            return None
        return found


def _openness(entry: CallEntry) -> int:
    if entry.status == "in_flight":
        return 2 if entry.listeners == 0 else 1
    return 2 if not entry.resolved and (entry.status == "failed" or not entry.delivered) else 0


class Rollouts:
    """The rollouts that a gateway knows, read from the ledger when first named. Bounded: idle ones are let go and read again."""

    def __init__(self, ledger: LedgerHandle) -> None:
        self.ledger = ledger
        self.pinned: set[str] = set()
        self._open: OrderedDict[str, RolloutEntry] = OrderedDict()
        self._closed: OrderedDict[str, None] = OrderedDict()
        self._loading: dict[str, asyncio.Task[RolloutEntry]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def known(self, rollout_id: str) -> RolloutEntry | None:
        """The entry of an open rollout that was named before."""
        return self._open.get(rollout_id)

    async def entry(self, rollout_id: str) -> RolloutEntry:
        """The rollout's entry; `closed` where it has ended.

        Raises:
            UnknownId: the ledger has no start of it.
            LedgerUnavailable: the ledger cannot be read.
        """
        if not IDENTIFIER.fullmatch(rollout_id):
            raise UnknownId(f"rollout id {ascii(rollout_id)[:100]}; allowed: an id that matches {IDENTIFIER.pattern}")
        if rollout_id in self._closed:
            return RolloutEntry(rollout_id, 0, "", closed=True)
        entry = self._open.get(rollout_id)
        if entry is not None:
            self._open.move_to_end(rollout_id)
            return entry
        task = self._loading.get(rollout_id)
        if task is None:
            task = self._loading[rollout_id] = asyncio.create_task(self._load(rollout_id))
            task.add_done_callback(lambda done: self._loaded(rollout_id, done))
        return await asyncio.shield(task)

    def _loaded(self, rollout_id: str, task: "asyncio.Task[RolloutEntry]") -> None:
        del self._loading[rollout_id]
        if not task.cancelled():
            task.exception()

    async def _load(self, rollout_id: str) -> RolloutEntry:
        entry = await asyncio.to_thread(read_rollout, self.ledger, rollout_id)
        if rollout_id in self._closed:
            entry.closed = True
        if entry.closed:
            self.close(rollout_id)
        else:
            self._open[rollout_id] = entry
            self._shrink()
        return entry

    def _shrink(self) -> None:
        if len(self._open) <= KEPT_IDLE_ROLLOUTS:
            return
        idle = (key for key, known in self._open.items() if known.in_flight == 0 and key not in self.pinned)
        oldest = next(idle, None)
        if oldest is not None:
            del self._open[oldest]

    async def older(self, entry: RolloutEntry) -> RolloutEntry:
        """The calls that `entry` let go of, as the ledger has them."""
        found = await asyncio.to_thread(read_rollout, self.ledger, entry.rollout_id, keep_all=True)
        for call_id in entry.recent:
            found.recent.pop(call_id, None)
        return found

    def close(self, rollout_id: str) -> RolloutCalls:
        """The rollout's calls; from now on it takes no more."""
        entry = self._open.pop(rollout_id, None)
        self.pinned.discard(rollout_id)
        self._closed[rollout_id] = None
        if len(self._closed) > KEPT_CLOSED:
            self._closed.popitem(last=False)
        if entry is None:
            return RolloutCalls()
        entry.closed = True
        return entry.summary()


def read_rollout(ledger: LedgerHandle, rollout_id: str, *, keep_all: bool = False) -> RolloutEntry:
    """A rollout's calls as the ledger has them; delivery of their answers is not recorded, so recorded ones count as delivered.

    Raises:
        UnknownId: no such rollout has started.
    """
    entry: RolloutEntry | None = None
    for recorded in ledger.read_stream(f"rollout-{rollout_id}"):
        body = recorded.body
        if isinstance(body, RolloutStarted):
            names = [who.name for who in body.participants if who.role == "agent"] or [who.name for who in body.participants]
            entry = RolloutEntry(rollout_id, body.attempt, names[0] if names else "policy")
        elif entry is None:
            continue
        elif isinstance(body, ModelCallDispatched):
            known = CallEntry(body.call_id, body.index, body.request_digest, body.retry_key, tuple(body.added_fields), "failed")
            entry.recent[body.call_id] = known
            entry.call_ids[body.call_id] = None
            entry.next_index = max(entry.next_index, body.index + 1)
            if body.retry_of is not None and body.retry_of in entry.recent:
                entry.recent[body.retry_of].resolved = True
        elif isinstance(body, ModelCalled) and body.call_id in entry.recent and body.status == "completed":
            known = entry.recent[body.call_id]
            known.status, known.response, known.delivered = "completed", body.response, True
        elif isinstance(body, RolloutEnded):
            entry.closed = True
        if not keep_all and len(entry.recent) > KEPT_CALLS:
            entry.recent.popitem(last=False)
            entry.truncated = True
    if entry is None:
        raise UnknownId(f"no rollout {rollout_id[:100]!r} has started in project {ledger.project!r}")
    return entry


def dangling_intents(ledger: LedgerHandle) -> list[ModelCallDispatched]:
    """Calls that were dispatched and have neither an answer nor an error: still in flight, or cut off by a kill."""
    return list(_open_intents(ledger))


def _open_intents(ledger: LedgerHandle) -> Iterator[ModelCallDispatched]:
    ledger.barrier()
    intents: dict[str, ModelCallDispatched] = {}
    for recorded in read_all(ledger.pool, ledger.project, kinds=["ModelCallDispatched", "ModelCalled"]):
        body = recorded.body
        if isinstance(body, ModelCallDispatched):
            intents[body.call_id] = body
        elif isinstance(body, ModelCalled):
            intents.pop(body.call_id, None)
    yield from intents.values()


def unattributed_calls(ledger: LedgerHandle) -> list[ModelCallDispatched]:
    """Calls that came without a rollout, in order of position."""
    ledger.barrier()
    events = read_all(ledger.pool, ledger.project, kinds=["ModelCallDispatched"])
    return [body for body in (recorded.body for recorded in events) if isinstance(body, ModelCallDispatched) and body.rollout_id is None]
