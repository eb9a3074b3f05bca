"""The gateway of an engine in this process: answers the calls of all open rollouts together, recorded first. Writes the ledger."""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields

from ledger.appender import Appender
from ledger.blobs import Pending
from ledger.errors import EngineFailed, SettingsError, TallyError
from ledger.events import RolloutStarted
from ledger.events.model_call import CallRole
from ledger.ids import uuid7
from ledger.ledger import LedgerHandle
from ledger.store import New, Receipt
from training.rollout.capture import for_client
from training.rollout.completion import completion, refusal, too_long, trace_of
from training.rollout.gateway_record import CallFacts, CallResult, Recorder
from training.rollout.gateway_request import Answer, Refusal, error_body, read_chat, upstream_body
from training.rollout.gateway_rollouts import CallEntry, RolloutCalls, RolloutEntry
from training.rollout.gateway_stream import dumps
from training.rollout.gateway_upstream import Upstream
from training.rollout.sampling_calls import BatchedEngine, SampleRequest, settings_of


@dataclass
class Spent:
    """What the batches of a collection were, and the seconds that they took by part.

    Attributes:
        batches, calls: number.
        prompt_tokens, cached_tokens, sampled_tokens: of all calls; cached ones were in the prompt and were not fed again.
        template_s: messages to token ids.
        decode_s: feeding and sampling.
        record_s: answers to events.
        commit_s: until the events were durable.
    """

    batches: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    sampled_tokens: int = 0
    template_s: float = 0.0
    decode_s: float = 0.0
    record_s: float = 0.0
    commit_s: float = 0.0

    def __str__(self) -> str:
        return ", ".join(
            f"{f.name} {value:.3f}" if isinstance(value := getattr(self, f.name), float) else f"{f.name} {value}" for f in fields(self)
        )


@dataclass(eq=False)
class _Asked:
    """A call that waits for its batch, or for its record."""

    facts: CallFacts
    request: Pending
    entry: CallEntry
    rollout: RolloutEntry
    arrived: float
    answer: "asyncio.Future[Answer]"
    request_to_sample: SampleRequest | None = None
    result: CallResult | None = None
    latency_s: float = 0.0
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
    """Takes the calls of many rollouts; when every open rollout waits for an answer, all of them are sampled in one batch.

    A rollout is open from when its start is given to `appender` until `close_rollout`. The intents and outcomes of a batch are one
    append, and durable before any of its answers is given. For a collection this stands in the place of `Gateway`.

    Attributes:
        appender: what the collection must write with.
        spent: what was done so far.
    """

    def __init__(
        self,
        ledger: LedgerHandle,
        engine: BatchedEngine,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.ledger, self.engine, self.spent = ledger, engine, Spent()
        self.appender = _Watching(ledger, self._begun)
        self._recorder = Recorder(ledger, self.appender, timeout_s=60.0)
        self._monotonic, self._random_bytes = monotonic, random_bytes
        self._thread = ThreadPoolExecutor(1, "tally-decode")
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
        return f"torch://{self.engine.engine_id}/r/{rollout_id}/v1"

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
            self.engine.release(_key(rollout_id, name))
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
            raise Refusal(400, "invalid_request", "stream is true; an engine in this process allows false: it gives whole answers")
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
        await loop.run_in_executor(self._thread, self._sample, batch)
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
                self.engine.release(_key(asked.rollout.rollout_id, asked.facts.participant))

    def _sample(self, batch: Sequence[_Asked]) -> None:
        """Fill in the results of a batch; runs in the decoding thread."""
        began = self._monotonic()
        for asked in batch:
            self._prepare(asked)
        ready = [(asked, request) for asked in batch if (request := asked.request_to_sample) is not None]
        prepared = self._monotonic()
        try:
            samples = self.engine.sample([request for _, request in ready])
        except EngineFailed as error:
            for asked, _ in ready:
                asked.result = CallResult("upstream_error", 1, 500, "engine", error=refusal(str(error), status=500))
            samples = []
        sampled = self._monotonic()
        for (asked, request), sample in zip(ready, samples, strict=bool(samples)):
            body = completion(
                self.engine, request, sample, model=asked.facts.request.model, call_id=asked.facts.call_id,
                created=int(self.ledger.clock().timestamp()),
            )  # fmt: skip
            asked.latency_s = prepared - began + sample.seconds
            asked.result = CallResult("completed", 1, 200, body=dumps(body), response=body, trace=trace_of(request, sample))
            self.spent.prompt_tokens += len(request.prompt)
            self.spent.cached_tokens += sample.cached
            self.spent.sampled_tokens += len(sample.ids)
        self.spent.batches += 1
        self.spent.calls += len(batch)
        self.spent.template_s += prepared - began
        self.spent.decode_s += sampled - prepared
        self.spent.record_s += self._monotonic() - sampled

    def _prepare(self, asked: _Asked) -> None:
        facts = asked.facts
        body = facts.request.body
        try:
            settings = settings_of(body)
            if body.get("seed") is None:
                raise SettingsError("seed is missing; with keyed noise each call has one")
            prompt = self.engine.prompt_ids(body["messages"], body.get("tools") or ())
        except SettingsError as error:
            asked.result = CallResult("upstream_error", 1, 400, "engine", error=refusal(str(error)))
            return
        if len(prompt) + settings.max_tokens > self.engine.context:
            refused = too_long(len(prompt), settings.max_tokens, self.engine.context)
            asked.result = CallResult("upstream_error", 1, 400, "engine", error=refused)
            return
        key = _key(asked.rollout.rollout_id, facts.participant)
        asked.request_to_sample = SampleRequest(key, prompt, int(body["seed"]), settings)

    def _events(self, asked: _Asked, asked_at: float) -> list[New]:
        result = asked.result
        if result is None:
            raise TallyError(f"call {asked.facts.call_id} has no result")
        asked.submitted = True
        outcome, asked.entry.response = self._recorder.outcome(
            asked.facts, result, intent_id=self._recorder.intent_id(asked.facts), latency_s=asked.latency_s,
            queued_s=asked_at - asked.arrived,
        )  # fmt: skip
        return [self._recorder.intent(asked.facts, asked.request), outcome]

    def _settle(self, asked: _Asked) -> None:
        facts, result, entry = asked.facts, asked.result, asked.entry
        assert result is not None
        completed = result.status == "completed"
        entry.status, entry.delivered = "completed" if completed else "failed", completed
        asked.rollout.in_flight -= 1
        asked.rollout.sampling_s += asked.latency_s
        if not asked.rollout.closed:
            self._recorder.recorded(facts, result)
        if asked.answer.done():
            return
        headers = {"X-Tally-Call-Id": facts.call_id, "X-Tally-Attempts": "1"}
        if completed:
            asked.answer.set_result(Answer(200, dumps(for_client(result.response, facts.added)), headers))
        else:
            asked.answer.set_result(Answer(result.http_status or 500, result.error or b"", {**headers, "X-Tally-Error-Source": "engine"}))


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


def _key(rollout_id: str, participant: str) -> str:
    return f"{rollout_id}/{participant}"
