"""One captured call: intent, upstream, checks, record, answer, in that order. Talks to the upstream over HTTP and writes the ledger."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import aiohttp
from aiohttp import web

from ledger.blobs import Pending
from ledger.errors import TallyError
from ledger.events import BlobRef
from ledger.events.model_call import ErrorSource
from training.rollout.capture import CaptureMismatch, TokenTrace, for_client, only_choice, partial_trace, read_json, token_trace
from training.rollout.gateway_record import CalledStatus, CallFacts, CallResult, Recorder
from training.rollout.gateway_request import Answer, error_body
from training.rollout.gateway_rollouts import CallEntry, RolloutEntry
from training.rollout.gateway_stream import DONE, EventSplitter, StreamAssembly, chunk_for_client, dumps, event

CONNECT_FAILURES = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


@dataclass(frozen=True)
class Limits:
    """Bounds of a gateway.

    Attributes:
        max_body_bytes: largest request and largest answer.
        connect_timeout_s: a try to connect to an upstream.
        connect_attempts: tries before an upstream counts as unreachable; only what failed before any byte was sent is tried again.
        connect_pause_s: pause before the second try; doubles each time.
        ledger_timeout_s: a durable write, before the client is told that the ledger is unavailable.
        abandoned_s: how long a call goes on after its last client left before the answer began, so that a retry finds it.
        drain_s: how long `stop` waits for calls in flight before it cuts them off.
    """

    max_body_bytes: int = 64 * 1024 * 1024
    connect_timeout_s: float = 10.0
    connect_attempts: int = 3
    connect_pause_s: float = 0.2
    ledger_timeout_s: float = 30.0
    abandoned_s: float = 10.0
    drain_s: float = 10.0


@dataclass
class Counters:
    """What a gateway has done since it started."""

    calls: int = 0
    completed: int = 0
    replayed: int = 0
    coalesced: int = 0
    retries: int = 0
    refused: int = 0
    capture_mismatches: int = 0
    upstream_errors: int = 0
    timeouts: int = 0
    client_aborted: int = 0
    interrupted: int = 0
    late: int = 0
    unattributed: int = 0
    ledger_failures: int = 0

    def snapshot(self) -> dict[str, int]:
        """All counters by name."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def count(self, status: CalledStatus) -> None:
        """Count a recorded result."""
        name = {"upstream_error": "upstream_errors", "timeout": "timeouts", "capture_mismatch": "capture_mismatches"}.get(status, status)
        setattr(self, name, getattr(self, name) + 1)


class Sink:
    """The client's end of a streamed answer. Writing to a client that has left does nothing."""

    def __init__(self, request: web.Request) -> None:
        self.request = request
        self.response: web.StreamResponse | None = None
        self.detached = False

    @property
    def started(self) -> bool:
        """Whether the client has been sent the head of the stream."""
        return self.response is not None

    async def start(self, headers: dict[str, str]) -> None:
        """Send the head of an event stream."""
        head = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", **headers}
        self.response = web.StreamResponse(headers=head)
        try:
            await self.response.prepare(self.request)
        except ConnectionError:
            self.detached = True

    async def write(self, data: bytes) -> None:
        """Send bytes on."""
        if self.response is None or self.detached or not data:
            return
        try:
            await self.response.write(data)
        except ConnectionError:
            self.detached = True


@dataclass(eq=False)
class Call:
    """A call in flight."""

    facts: CallFacts
    request: Pending
    payload: bytes
    entry: CallEntry
    rollout: RolloutEntry | None
    arrived: float
    sink: Sink | None
    assembly: StreamAssembly | None = None
    held: list[bytes] = field(default_factory=list)
    raw: bytes | None = None
    attempts: int = 0
    http_status: int | None = None
    asking: "asyncio.Future[CallResult] | None" = None
    stopped: Literal["client_aborted", "interrupted"] | None = None

    def stop(self, status: Literal["client_aborted", "interrupted"]) -> None:
        """Let go of the upstream; what came so far is recorded with this status."""
        if self.stopped is None:
            self.stopped = status
            if self.asking is not None:
                self.asking.cancel()

    def headers(self) -> dict[str, str]:
        """Headers of every answer to this call."""
        return {"X-Tally-Call-Id": self.facts.call_id, "X-Tally-Attempts": str(self.attempts)}


class Exchange:
    """Carries calls from intent to answer."""

    def __init__(
        self, session: aiohttp.ClientSession, recorder: Recorder, counters: Counters, limits: Limits, *, monotonic: Callable[[], float]
    ) -> None:
        self.session, self.recorder, self.counters, self.limits, self.monotonic = session, recorder, counters, limits, monotonic

    async def run(self, call: Call) -> Answer:
        """The answer to a call, whose record is durable."""
        facts, entry = call.facts, call.entry
        try:
            intent_id = await self.recorder.dispatched(facts, call.request, late=lambda: _recall(call))
        except TallyError as error:
            entry.status = "failed"
            if call.rollout is not None:
                call.rollout.withdraw(entry)
                call.rollout.refuse(entry.digest)
            return self._unrecorded(call, error)
        asked = self.monotonic()
        result = await self._result(call)
        latency_s = self.monotonic() - asked
        if call.rollout is not None:
            call.rollout.sampling_s += latency_s
        try:
            reference = await self.recorder.called(
                facts, result, intent_id=intent_id, latency_s=latency_s, queued_s=asked - call.arrived,
                late=lambda ref: _settle(entry, result, ref),
            )  # fmt: skip
        except TallyError as error:
            entry.status = "failed"
            return self._unrecorded(call, error)
        _settle(entry, result, reference)
        self.counters.count(result.status)
        return self._answer(call, result)

    def _unrecorded(self, call: Call, error: TallyError) -> Answer:
        self.counters.ledger_failures += 1
        return _error(call, 503, "ledger_unavailable", f"nothing was acknowledged: {error}", "gateway")

    async def _result(self, call: Call) -> CallResult:
        if call.stopped is not None:
            return self._cut_off(call, call.stopped, "before the upstream was asked")
        call.asking = asyncio.ensure_future(self._ask(call))
        try:
            return await call.asking
        except asyncio.CancelledError:
            if call.stopped is None:
                raise
            return self._cut_off(call, call.stopped, "while the upstream was answering")

    def _cut_off(self, call: Call, status: Literal["client_aborted", "interrupted"], when: str) -> CallResult:
        if status == "client_aborted":
            return self._broken(call, status, "client", f"the client left {when}")
        return self._broken(call, status, "gateway", f"the gateway was stopped {when}")

    async def _ask(self, call: Call) -> CallResult:
        upstream = call.facts.upstream
        source = upstream.error_source
        try:
            async with asyncio.timeout(upstream.timeout_s):
                async with await self._connect(call) as response:
                    call.http_status = response.status
                    return await self._read(call, response)
        except CaptureMismatch as error:
            return self._broken(call, "capture_mismatch", source, str(error))
        except CONNECT_FAILURES as error:
            return self._broken(call, "upstream_error", source, f"{upstream.base_url} cannot be reached: {error}")
        except TimeoutError:
            return self._broken(call, "timeout", source, f"no complete answer within {upstream.timeout_s:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return self._broken(call, "upstream_error", source, f"the upstream broke off: {type(error).__name__}: {error}")

    async def _connect(self, call: Call) -> aiohttp.ClientResponse:
        facts = call.facts
        headers = {"Content-Type": "application/json", "X-Tally-Call-Id": facts.call_id}
        if facts.rollout_id is not None:
            headers.update({"X-Tally-Rollout-Id": facts.rollout_id, "X-Tally-Role": facts.role})
        if facts.upstream.api_key is not None:
            headers["Authorization"] = f"Bearer {facts.upstream.api_key}"
        while True:
            call.attempts += 1
            try:
                return await self.session.post(
                    f"{facts.upstream.base_url}/chat/completions", data=call.payload, headers=headers, allow_redirects=False
                )
            except CONNECT_FAILURES:
                if call.attempts >= self.limits.connect_attempts:
                    raise
            await asyncio.sleep(self.limits.connect_pause_s * 2 ** (call.attempts - 1))

    async def _read(self, call: Call, response: aiohttp.ClientResponse) -> CallResult:
        if response.status != 200:
            body = await self._body(response)
            return CallResult(
                "upstream_error", call.attempts, response.status, call.facts.upstream.error_source, error=body,
                content_type=response.content_type, retry_after=response.headers.get("Retry-After"),
            )  # fmt: skip
        if call.sink is not None and response.content_type == "text/event-stream":
            return await self._stream(call, call.sink, response)
        call.raw = await self._body(response)
        parsed = read_json(call.raw)
        return CallResult("completed", call.attempts, 200, body=call.raw, response=parsed, trace=_trace(call, parsed))

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        if (response.content_length or 0) <= self.limits.max_body_bytes:
            parts, size = [], 0
            async for part in response.content.iter_any():
                parts.append(part)
                size += len(part)
                if size > self.limits.max_body_bytes:
                    break
            else:
                return b"".join(parts)
        raise CaptureMismatch(f"answer of more than {self.limits.max_body_bytes} bytes")

    async def _stream(self, call: Call, sink: Sink, response: aiohttp.ClientResponse) -> CallResult:
        assembly = call.assembly = StreamAssembly()
        splitter = EventSplitter()
        added, size = call.facts.added, 0
        await sink.start(call.headers())
        async for data in response.content.iter_any():
            size += len(data)
            if size > self.limits.max_body_bytes * 4:
                raise CaptureMismatch(f"stream of more than {self.limits.max_body_bytes * 4} bytes")
            for payload in splitter.feed(data):
                if payload == b"[DONE]":
                    return self._stream_result(call, assembly)
                chunk = read_json(payload)
                if "error" in chunk:
                    return self._broken(call, "upstream_error", call.facts.upstream.error_source, payload)
                assembly.add(chunk)
                sent = chunk_for_client(chunk, added)
                if sent is None:
                    continue
                out = event(dumps(sent) if added else payload)
                if assembly.finished:
                    call.held.append(out)
                else:
                    await sink.write(out)
        return self._broken(call, "upstream_error", call.facts.upstream.error_source, "the upstream's stream ended without [DONE]")

    def _stream_result(self, call: Call, assembly: StreamAssembly) -> CallResult:
        response = assembly.response()
        trace = _trace(call, response)
        return CallResult("completed", call.attempts, 200, body=dumps(response), response=response, trace=trace, stream_complete=True)

    def _broken(self, call: Call, status: CalledStatus, source: ErrorSource, error: str | bytes) -> CallResult:
        response: dict[str, Any] = {} if call.assembly is None else call.assembly.response()
        known = status != "capture_mismatch" and call.facts.upstream.kind == "vllm" and call.assembly is not None
        return CallResult(
            status, call.attempts, call.http_status, source, error=error if isinstance(error, bytes) else error.encode("utf-8", "replace"),
            body=dumps(response) if response else call.raw, response=response, trace=partial_trace(response) if known else TokenTrace(),
            stream_complete=None if call.assembly is None else False,
            content_type="application/json" if isinstance(error, bytes) else "text/plain",
        )  # fmt: skip

    def _answer(self, call: Call, result: CallResult) -> Answer:
        if call.rollout is not None and call.rollout.closed:
            self.counters.late += 1
            return _error(call, 409, "rollout_closed", f"rollout {call.rollout.rollout_id!r} ended during this call", "gateway")
        if result.status == "completed":
            added = call.facts.added
            response = for_client(result.response, added) if added else result.response
            body = dumps(response) if added or result.stream_complete else result.body or b""
            return Answer(200, body, call.headers(), response=response, tail=b"".join([*call.held, DONE]))
        return _failure(call, result)


def _trace(call: Call, response: dict[str, Any]) -> TokenTrace:
    if call.facts.upstream.kind == "vllm":
        return token_trace(response)
    only_choice(response)
    return TokenTrace()


def _settle(entry: CallEntry, result: CallResult, reference: BlobRef | None) -> None:
    entry.response = reference
    entry.status = "completed" if result.status == "completed" else "failed"


def _recall(call: Call) -> None:
    if call.rollout is not None:
        call.rollout.call_ids[call.facts.call_id] = None
        call.rollout.remember(call.entry)


def _failure(call: Call, result: CallResult) -> Answer:
    message = (result.error or b"").decode("utf-8", "replace")
    if result.status == "capture_mismatch":
        return _error(call, 502, "capture_mismatch", message, "gateway")
    if result.status == "timeout":
        return _error(call, 504, "timeout", message, result.source)
    if result.status in ("client_aborted", "interrupted"):
        return _error(call, 503, result.status, message, result.source)
    headers = {**call.headers(), "X-Tally-Error-Source": str(result.source)}
    if result.retry_after is not None:
        headers["Retry-After"] = result.retry_after
    if result.http_status is not None and result.http_status != 200:
        return Answer(result.http_status, result.error or b"", headers, content_type=result.content_type)
    if result.content_type == "application/json" and result.error is not None:
        return Answer(502, result.error, headers, tail=event(result.error))
    return _error(call, 502, "upstream_unreachable" if result.http_status is None else "upstream_broken", message, result.source)


def _error(call: Call, status: int, kind: str, message: str, source: ErrorSource | None) -> Answer:
    body = error_body(kind, message, source=str(source), call_id=call.facts.call_id)
    return Answer(status, body, {**call.headers(), "X-Tally-Error-Source": str(source)}, tail=event(body))
