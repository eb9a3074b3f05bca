"""The gateway of what answers in this process: takes the calls of all open rollouts together, recorded first. Writes the ledger."""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ledger.appender import Appender
from ledger.blobs import Pending
from ledger.errors import EngineFailed, TallyError
from ledger.events import RolloutStarted
from ledger.events.model_call import CallRole
from ledger.ids import uuid7
from ledger.ledger import LedgerHandle
from ledger.store import New, Receipt
from training.rollout.capture import for_client
from training.rollout.gateway_record import CallFacts, Recorder
from training.rollout.gateway_request import Answer, Refusal, error_body, read_chat, upstream_body
from training.rollout.gateway_rollouts import CallEntry, RolloutCalls, RolloutEntry
from training.rollout.gateway_stream import dumps
from training.rollout.gateway_upstream import Upstream
from training.rollout.lockstep_answers import Answered, Answers, Spent


@dataclass(eq=False)
class _Asked:
    """A call that waits for its batch, or for its record."""

    facts: CallFacts
    request: Pending
    entry: CallEntry
    rollout: RolloutEntry
    arrived: float
    answer: "asyncio.Future[Answer]"
    answered: Answered | None = None
    submitted: bool = False

    def withdraw(self) -> None:
        """Take the call back: no event will say anything of it."""
        self.rollout.withdraw(self.entry)
        self.rollout.in_flight -= 1
        self.answer.cancel()


@dataclass(frozen=True)
class _Participant:
    upstream: Upstream
    role: CallRole
    correlation_id: str | None


class LockstepGateway:
    """Takes the calls of many rollouts; when every open rollout waits for an answer, all of them are answered in one batch.

    A rollout is open from when its start is given to `appender` until `close_rollout`. The intents and outcomes of a batch are one
    append, and durable before any of its answers is given. For a collection this stands in the place of `Gateway`.

    Attributes:
        appender: what the collection must write with.
        spent: what was done so far.
    """

    def __init__(
        self,
        ledger: LedgerHandle,
        answers: Answers,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.ledger, self.answers, self.spent = ledger, answers, Spent()
        self.appender = _Watching(ledger, self._begun)
        self._recorder = Recorder(ledger, self.appender, timeout_s=60.0)
        self._monotonic, self._random_bytes = monotonic, random_bytes
        self._thread = ThreadPoolExecutor(1, "tally-answer")
        self._open: dict[str, RolloutEntry] = {}
        self._participants: dict[str, dict[str, _Participant]] = {}
        self._waiting: list[_Asked] = []
        self._batch: list[_Asked] = []
        self._running: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Wait for what is under way, then end the threads."""
        if self._running is not None:
            await asyncio.wait([self._running])
        await self.appender.close()
        await asyncio.to_thread(self._thread.shutdown)

    def base_url(self, rollout_id: str) -> str:
        """Where the rollout's calls go in this process."""
        return f"{self.answers.address}/r/{rollout_id}/v1"

    def register(
        self,
        rollout_id: str,
        upstream: Upstream,
        *,
        participant: str = "policy",
        role: CallRole = "agent",
        correlation_id: str | None = None,
    ) -> None:
        """Say who takes part in a rollout; the first registered makes the requests that name nobody."""
        self._begun(rollout_id)
        self._participants.setdefault(rollout_id, {})[participant] = _Participant(upstream, role, correlation_id)

    def calls(self, rollout_id: str) -> RolloutCalls:
        """The rollout's calls so far."""
        entry = self._open.get(rollout_id)
        return RolloutCalls() if entry is None else entry.summary()

    def close_rollout(self, rollout_id: str) -> RolloutCalls:
        """The rollout's calls; it takes no more, and those that no event says anything of were never made."""
        entry = self._open.pop(rollout_id, None)
        names = self._participants.pop(rollout_id, {})
        for name in names:
            self.answers.release(rollout_id, name)
        self._recorder.linkers.drop(rollout_id)
        if entry is None:
            return RolloutCalls()
        entry.closed = True
        for asked in (*self._waiting, *self._batch):
            if asked.rollout is entry and not asked.submitted:
                asked.withdraw()
        self._waiting = [asked for asked in self._waiting if asked.rollout is not entry]
        self._go()
        return entry.summary()

    async def chat(self, rollout_id: str, raw: bytes, headers: Mapping[str, str]) -> Answer:
        """The answer to a chat completion, or the error in its place; it is recorded when this returns.

        Raises:
            LedgerUnavailable: it could not be recorded.
        """
        try:
            asked = self._asked(rollout_id, raw, headers)
        except Refusal as refused:
            return Answer(refused.status, error_body(refused.kind, refused.message), {"X-Tally-Error-Source": "gateway"})
        self._waiting.append(asked)
        self._go()
        return await asked.answer

    def _begun(self, rollout_id: str) -> None:
        self._open.setdefault(rollout_id, RolloutEntry(rollout_id, 0, "policy"))

    def _asked(self, rollout_id: str, raw: bytes, headers: Mapping[str, str]) -> _Asked:
        chat = read_chat(raw, headers)
        entry, known = self._open.get(rollout_id), self._participants.get(rollout_id, {})
        if entry is None or not known:
            raise Refusal(409, "rollout_closed", f"rollout {rollout_id!r} is not open; nothing is captured under its id")
        if chat.stream:
            raise Refusal(400, "invalid_request", "stream is true; what answers in this process allows false: it gives whole answers")
        name = chat.participant or next(iter(known))
        if name not in known:
            raise Refusal(404, "unknown_participant", f"participant {name!r} is not registered; known: {', '.join(known)}")
        who = known[name]
        role = chat.role or who.role
        digest, retry_key, request = self._recorder.identify(chat, name, role)
        meant = entry.meant_by(digest, retry_key, retried=chat.retried) if chat.retried else None
        call = entry.begin(uuid7(self._random_bytes(10)), digest, retry_key)
        _, call.added = upstream_body(chat, who.upstream)
        facts = CallFacts(
            call.call_id, call.index, rollout_id, name, role, chat, who.upstream, call.added, digest, retry_key,
            meant.call_id if meant is not None and meant.status == "failed" else None, who.correlation_id,
        )  # fmt: skip
        return _Asked(facts, request, call, entry, self._monotonic(), asyncio.get_running_loop().create_future())

    def _go(self) -> None:
        """Start a batch if none is under way and no open rollout is elsewhere than in a call."""
        if self._running is None and self._waiting and {asked.facts.rollout_id for asked in self._waiting} >= self._open.keys():
            # In an order that does not depend on who came first.
            self._batch = sorted(self._waiting, key=lambda asked: (asked.rollout.rollout_id, asked.facts.index))
            self._waiting = []
            self._running = asyncio.create_task(self._run(self._batch))
            self._running.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        batch, self._batch, self._running = self._batch, [], None
        broken = asyncio.CancelledError() if task.cancelled() else task.exception()
        for asked in batch:
            if not asked.answer.done():
                asked.answer.set_exception(broken or EngineFailed("the batch ended without an answer"))
        self._go()

    async def _run(self, batch: Sequence[_Asked]) -> None:
        loop, asked_at = asyncio.get_running_loop(), self._monotonic()
        answered = await loop.run_in_executor(self._thread, self.answers.answer, [asked.facts for asked in batch], self.spent)
        for asked, one in zip(batch, answered, strict=True):
            asked.answered = one
        self.spent.batches += 1
        self.spent.calls += len(batch)
        began = self._monotonic()
        open_calls = [asked for asked in batch if not asked.rollout.closed]
        events = [event for asked in open_calls for event in self._events(asked, asked_at)]
        recorded = self._monotonic()
        if events:
            await self.appender.append(events)
        self.spent.record_s += recorded - began
        self.spent.commit_s += self._monotonic() - recorded
        for asked in open_calls:
            self._settle(asked)
        for asked in batch:
            if asked.rollout.closed:
                self.answers.release(asked.rollout.rollout_id, asked.facts.participant)

    def _events(self, asked: _Asked, asked_at: float) -> list[New]:
        answered = asked.answered
        if answered is None:
            raise TallyError(f"call {asked.facts.call_id} has no answer")
        asked.submitted = True
        outcome, asked.entry.response = self._recorder.outcome(
            asked.facts, answered.result, intent_id=self._recorder.intent_id(asked.facts), latency_s=answered.latency_s,
            queued_s=asked_at - asked.arrived,
        )  # fmt: skip
        return [self._recorder.intent(asked.facts, asked.request), outcome]

    def _settle(self, asked: _Asked) -> None:
        facts, answered, entry = asked.facts, asked.answered, asked.entry
        assert answered is not None
        result = answered.result
        completed = result.status == "completed"
        entry.status, entry.delivered = "completed" if completed else "failed", completed
        asked.rollout.in_flight -= 1
        asked.rollout.sampling_s += answered.latency_s
        if not asked.rollout.closed:
            self._recorder.recorded(facts, result)
        if asked.answer.done():
            return
        headers = {"X-Tally-Call-Id": facts.call_id, "X-Tally-Attempts": "1"}
        if completed:
            asked.answer.set_result(Answer(200, dumps(for_client(result.response, facts.added)), headers))
        else:
            asked.answer.set_result(
                Answer(result.http_status or 500, result.error or b"", {**headers, "X-Tally-Error-Source": str(result.source)})
            )


class _Watching(Appender):
    """An appender that says which rollouts are about to start."""

    def __init__(self, ledger: LedgerHandle, begun: Callable[[str], None]) -> None:
        super().__init__(ledger)
        self._begun = begun

    def submit(self, events: Sequence[New]) -> "asyncio.Future[Receipt]":
        for event in events:
            if isinstance(event.body, RolloutStarted):
                self._begun(event.body.rollout_id)
        return super().submit(events)
