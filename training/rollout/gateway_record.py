"""Writing calls: the intent before the upstream is asked, and what came of it before the client is answered. Writes the ledger."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from ledger import ids
from ledger.appender import Appender
from ledger.blobs import Pending
from ledger.canonical import digest
from ledger.errors import LedgerUnavailable
from ledger.events import BlobRef, ModelCallDispatched, ModelCalled, VersionSpan
from ledger.events.model_call import CallRole, ErrorSource, call_stream, called_key, dispatched_key
from ledger.ledger import LedgerHandle
from ledger.store import New
from ledger.tokens import CapturedTokens, captured
from training.rollout.capture import TokenTrace, usage_of, version_spans
from training.rollout.gateway_links import Linkers
from training.rollout.gateway_request import ChatRequest, code, sampling_of
from training.rollout.gateway_upstream import TOKENS_MISSING, Upstream

CalledStatus = Literal["completed", "upstream_error", "timeout", "client_aborted", "capture_mismatch", "interrupted"]


@dataclass(frozen=True)
class CallFacts:
    """What is known of a call before the upstream is asked.

    Attributes:
        call_id: UUIDv7.
        index: place in the rollout by dispatch order.
        rollout_id: None where nobody says.
        participant, role: who asks.
        request: the client's request.
        upstream: who is asked.
        added: fields that were added for the upstream.
        request_digest, retry_key: see `identify`.
        retry_of: the call that this one repeats.
        correlation_id: what the rollout belongs to.
    """

    call_id: str
    index: int
    rollout_id: str | None
    participant: str
    role: CallRole
    request: ChatRequest
    upstream: Upstream
    added: tuple[str, ...]
    request_digest: str
    retry_key: str | None
    retry_of: str | None
    correlation_id: str | None


@dataclass(frozen=True)
class CallResult:
    """What came of asking.

    Attributes:
        status: as in ModelCalled.
        http_status: what the upstream answered with, None where it did not.
        source: whose error, None without one.
        error: what went wrong, or the upstream's error body.
        body: the upstream's answer as received, or put together from a stream.
        response: the same, parsed.
        trace: tokens.
        attempts: connections tried.
        stream_complete: None without streaming.
        content_type: of `error`: JSON passes through to the client, plain text is the gateway's own.
        retry_after: the upstream's Retry-After.
    """

    status: CalledStatus
    attempts: int
    http_status: int | None = None
    source: ErrorSource | None = None
    error: bytes | None = None
    body: bytes | None = None
    response: dict[str, Any] = field(default_factory=dict)
    trace: TokenTrace = field(default_factory=TokenTrace)
    stream_complete: bool | None = None
    content_type: str = "application/json"
    retry_after: str | None = None


class Recorder:
    """Writes intents and results through one appender, each durable on return, each within `timeout_s`."""

    def __init__(self, ledger: LedgerHandle, appender: Appender, *, timeout_s: float) -> None:
        self.ledger, self.appender, self.timeout_s = ledger, appender, timeout_s
        self.linkers = Linkers()

    def prepare(self) -> None:
        """Fetch what later calls need from the database, so that none of them blocks the event loop."""
        self.ledger.pending(b"")

    def identify(self, request: ChatRequest, participant: str, role: str) -> tuple[str, str | None, Pending]:
        """Digest of a request (salted, with who asks), commitment to the client's idempotency key, and the request as a blob."""
        pending = self.ledger.pending(request.raw, media="application/json")
        key = request.idempotency_key
        retry_key = None if key is None else self.ledger.pending(f"idempotency-key:{key}").ref.blob_id
        return digest([pending.ref.blob_id, participant, role]), retry_key, pending

    async def dispatched(self, facts: CallFacts, request: Pending, *, late: Callable[[], None]) -> str:
        """Event id of the intent, which is durable.

        Args:
            facts: the call.
            request: the client's request.
            late: called when the write turns out to have been made after this gave up on it.
        Raises:
            LedgerUnavailable: it could not be written in time.
            TallyError: as `ledger.store.append`.
        """
        return await self._append(self.intent(facts, request), late=late, again=False)

    def intent(self, facts: CallFacts, request: Pending) -> New:
        """The event that says that a call is about to be made."""
        body = ModelCallDispatched(
            call_id=facts.call_id, rollout_id=facts.rollout_id, index=facts.index, participant=facts.participant, role=facts.role,
            request=request.ref, request_digest=facts.request_digest, upstream=facts.upstream.base_url, model=facts.request.model,
            stream_requested=facts.request.stream, retry_of=facts.retry_of, retry_key=facts.retry_key, added_fields=list(facts.added),
        )  # fmt: skip
        return self.ledger.new(body, request, correlation_id=facts.correlation_id)

    async def called(
        self,
        facts: CallFacts,
        result: CallResult,
        *,
        intent_id: str,
        latency_s: float,
        queued_s: float,
        late: Callable[[BlobRef | None], None],
    ) -> BlobRef | None:
        """Reference of the recorded answer, durable with all its tokens.

        Args:
            facts: the call.
            result: what came of it.
            intent_id: event id of its intent.
            latency_s: seconds from asking until the last byte.
            queued_s: seconds from arrival until asking.
            late: called with that reference when the write turns out to have been made after this gave up on it.
        Raises:
            LedgerUnavailable: it could not be written in time.
            TallyError: as `ledger.store.append`.
        """
        new, response = self.outcome(facts, result, intent_id=intent_id, latency_s=latency_s, queued_s=queued_s)
        await self._append(new, late=lambda: late(response), again=True)
        self.recorded(facts, result)
        return response

    def outcome(
        self, facts: CallFacts, result: CallResult, *, intent_id: str, latency_s: float, queued_s: float
    ) -> tuple[New, BlobRef | None]:
        """The event that says what came of a call, with its tokens, and the reference of the answer in it."""
        tokens = self._captured(facts, result.trace)
        body, pending = self._called(facts, result, tokens, latency_s, queued_s)
        new = self.ledger.new(body, *pending, correlation_id=facts.correlation_id, causation_id=intent_id, tokens=tokens.staged)
        return new, body.response

    def recorded(self, facts: CallFacts, result: CallResult) -> None:
        """Let later calls of the rollout continue a call, whose outcome is durable: a parent always is before its children."""
        if facts.rollout_id is not None:
            self.linkers.add(facts.rollout_id, self._called_id(facts), result.trace.prompt_ids, result.trace.sampled_ids)

    def intent_id(self, facts: CallFacts) -> str:
        """Event id of the intent of a call, which follows from its stream and key."""
        stream = call_stream(facts.rollout_id, facts.call_id)
        return ids.event_id(self.ledger.ledger_id, self.ledger.project, stream, dispatched_key(facts.call_id))

    def _called_id(self, facts: CallFacts) -> str:
        stream = call_stream(facts.rollout_id, facts.call_id)
        return ids.event_id(self.ledger.ledger_id, self.ledger.project, stream, called_key(facts.call_id))

    def _captured(self, facts: CallFacts, trace: TokenTrace) -> CapturedTokens:
        ledger = self.ledger
        link = None if facts.rollout_id is None else self.linkers.find(facts.rollout_id, trace.prompt_ids)
        arrays = (trace.prompt_ids, trace.sampled_ids, trace.logprobs)
        return captured(arrays, event_id=self._called_id(facts), subject=ledger.subject(ledger.subject_id), link=link)

    def _called(
        self, facts: CallFacts, result: CallResult, tokens: CapturedTokens, latency_s: float, queued_s: float
    ) -> tuple[ModelCalled, list[Pending]]:
        pending: list[Pending | None] = []
        response_media = "application/json" if result.response else "application/octet-stream"
        for data, media in ((result.error, result.content_type[:100]), (result.body, response_media)):
            pending.append(None if data is None else self.ledger.pending(data, media=media))
        error, response = pending[-2:]
        choices = result.response.get("choices") or [{}]
        finish = choices[0].get("finish_reason")
        body = ModelCalled(
            call_id=facts.call_id, rollout_id=facts.rollout_id, index=facts.index, participant=facts.participant, role=facts.role,
            status=result.status, error_source=result.source, error=None if error is None else error.ref, http_status=result.http_status,
            response=None if response is None else response.ref, prompt_ids=tokens.prompt_ids, sampled_ids=tokens.sampled_ids,
            logprobs=tokens.logprobs,
            logprobs_mode=None if tokens.logprobs is None else facts.upstream.logprobs_mode,
            tokens_missing=_missing(facts.upstream, result),
            finish_reason=code(finish) if isinstance(finish, str) else None, sampling=sampling_of(facts.request, facts.upstream),
            usage=usage_of(result.response), version_spans=_spans(facts.upstream, result), attempts=result.attempts,
            latency_s=latency_s, queued_s=queued_s, stream_complete=result.stream_complete,
        )  # fmt: skip
        return body, [item for item in pending if item is not None]

    async def _append(self, new: New, *, late: Callable[[], None], again: bool) -> str:
        deadline = asyncio.get_running_loop().time() + self.timeout_s
        while True:
            written = self.appender.submit([new])
            left = deadline - asyncio.get_running_loop().time()
            await asyncio.wait({written}, timeout=max(0.0, left))
            if not written.done():
                written.add_done_callback(lambda done: _settled_late(done, late))
                raise LedgerUnavailable(f"{new.body.kind} not written within {self.timeout_s} s")
            try:
                return written.result().events[0].event_id
            except LedgerUnavailable:
                # An intent is refused at once: nothing was asked of anybody. A result is worth waiting for.
                if not again or left < 0.5:
                    raise
            await asyncio.sleep(0.25)


def _settled_late(written: "asyncio.Future[Any]", late: Callable[[], None]) -> None:
    if not written.cancelled() and written.exception() is None:
        late()


def _missing(upstream: Upstream, result: CallResult) -> str | None:
    if result.trace.prompt_ids is not None and result.trace.sampled_ids is not None and result.trace.logprobs is not None:
        return None
    if result.status != "completed":
        return result.status
    return TOKENS_MISSING[upstream.kind]


def _spans(upstream: Upstream, result: CallResult) -> list[VersionSpan]:
    if result.trace.sampled_ids is None and result.status != "completed":
        return []
    stated = version_spans(result.response, result.trace.sampled_count, upstream.model_version) if result.status == "completed" else None
    spans = stated or [(upstream.model_version, 0, result.trace.sampled_count)]
    return [VersionSpan(model_version=version, start=start, end=end) for version, start, end in spans]
