"""The capture gateway: an OpenAI-compatible proxy that makes every call durable before it answers. Serves HTTP, writes the ledger."""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, get_args
from urllib.parse import quote

import aiohttp
from aiohttp import web

from ledger.appender import Appender
from ledger.errors import IdempotencyConflict, LedgerUnavailable, SettingsError, UnknownId
from ledger.events.model_call import CallRole
from ledger.ids import uuid7
from ledger.ledger import LedgerHandle
from training.rollout.capture import for_client, read_json
from training.rollout.gateway_call import Call, Counters, Exchange, Limits, Sink
from training.rollout.gateway_gate import Gate
from training.rollout.gateway_record import CallFacts, Recorder
from training.rollout.gateway_request import ROLES, Answer, ChatRequest, Refusal, read_chat, upstream_body
from training.rollout.gateway_rollouts import CallEntry, RolloutCalls, RolloutEntry, Rollouts
from training.rollout.gateway_routes import application, deliver
from training.rollout.gateway_stream import dumps
from training.rollout.gateway_upstream import Upstream

__all__ = ["Gateway", "Limits", "RolloutCalls", "Upstream"]

# vLLM's server closes an idle connection after 5 s; a request sent on one that is being closed cannot safely be sent again.
KEEPALIVE_S = 3.0


@dataclass(frozen=True)
class _Registration:
    upstream: Upstream
    role: CallRole
    correlation_id: str | None


class Gateway:
    """A server on one event loop; use it as `async with Gateway(ledger) as gateway`.

    Attributes:
        url: address, without a path.
        counters: what it has done since it started.
    """

    def __init__(
        self,
        ledger: LedgerHandle,
        upstreams: Mapping[str, Upstream] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        appender: Appender | None = None,
        limits: Limits | None = None,
        control_token: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.ledger, self.limits = ledger, limits or Limits()
        self.counters = Counters()
        self.url = ""
        self.control_token = control_token
        self._upstreams = dict(upstreams or {})
        self._serving: dict[str, str] = {}
        self._registered: dict[str, dict[str, _Registration]] = {}
        self._host, self._port = host, port
        self._own_appender = appender is None
        self._appender = Appender(ledger) if appender is None else appender
        self._recorder = Recorder(ledger, self._appender, timeout_s=self.limits.ledger_timeout_s)
        self._rollouts = Rollouts(ledger)
        self._gate = Gate(monotonic)
        self._calls: dict[str, Call] = {}
        self._monotonic, self._random_bytes = monotonic, random_bytes
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self._exchange: Exchange | None = None

    async def __aenter__(self) -> "Gateway":
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; `url` is set when this returns."""
        await asyncio.to_thread(self._recorder.prepare)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.limits.connect_timeout_s)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        self._exchange = Exchange(self._session, self._recorder, self.counters, self.limits, monotonic=self._monotonic)
        self._runner = web.AppRunner(application(self), handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port, backlog=4096).start()
        self.url = f"http://{self._host}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Stop listening, wait for calls in flight, cut off those that take too long, and record what came of each."""
        if self._runner is None or self._session is None:
            return
        self._exchange = None
        for site in list(self._runner.sites):
            await site.stop()
        tasks = [call.entry.task for call in self._calls.values() if call.entry.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=self.limits.drain_s)
            for call in list(self._calls.values()):
                call.stop("interrupted")
            await asyncio.wait(tasks)
        await self._runner.cleanup()
        await self._session.close()
        if self._own_appender:
            await self._appender.close()
        self._runner = None

    def base_url(self, rollout_id: str | None) -> str:
        """Base URL for an OpenAI client: everything it sends there is recorded under the rollout; None for calls that belong to none."""
        return f"{self.url}/v1" if rollout_id is None else f"{self.url}/r/{quote(rollout_id, safe='')}/v1"

    def register(
        self, rollout_id: str, upstream: Upstream, *, participant: str = "policy", role: str = "agent", correlation_id: str | None = None
    ) -> None:
        """Say which upstream answers a participant of a rollout; the first registered answers requests that name none.

        Raises:
            SettingsError: a role that does not exist.
        """
        for known in get_args(CallRole):
            if role == known:
                registration = _Registration(upstream, known, correlation_id)
                self._registered.setdefault(rollout_id, {})[participant] = registration
                self._rollouts.pinned.add(rollout_id)
                return
        raise SettingsError(f"role {role!r} of participant {participant!r}; allowed: {', '.join(ROLES)}")

    def set_upstream(self, model: str, upstream: Upstream) -> None:
        """Let `upstream` answer requests for `model` of rollouts that are not registered."""
        self._upstreams[model] = upstream

    def close_rollout(self, rollout_id: str) -> RolloutCalls:
        """The rollout's calls; it takes no more, and what is still in flight is recorded but refused to its client.

        A call in flight whose client has left is cut off.
        """
        self._registered.pop(rollout_id, None)
        self._recorder.linkers.drop(rollout_id)
        calls = self._rollouts.close(rollout_id)
        for call in self._calls.values() if calls.in_flight else ():
            if call.facts.rollout_id == rollout_id:
                _stop_if_unheard(call)
        return calls

    def calls(self, rollout_id: str) -> RolloutCalls:
        """The rollout's calls so far, empty before its first one."""
        entry = self._rollouts.known(rollout_id)
        return RolloutCalls() if entry is None else entry.summary()

    async def pause(self, reason: str, *, retry_after_s: float = 1.0) -> float:
        """Seconds until the last call in flight was answered; from now on new calls get 429, or wait if they say so.

        Raises:
            WaitTimeout: `resume` came first.
        """
        return await self._gate.pause(reason, retry_after_s=retry_after_s)

    def resume(self) -> None:
        """Let calls in again."""
        self._gate.resume()

    def refreshed(self, base_url: str, model_version: str) -> None:
        """Say that the server at `base_url` serves `model_version` from now on, whatever was registered; each call is stamped with it.

        Raises:
            SettingsError: calls may be under way, so that one could cross the refresh; pause first.
        """
        if not self._gate.paused or self._gate.in_flight:
            raise SettingsError(
                f"{base_url} was refreshed to {model_version} with {self._gate.in_flight} calls in flight and the gateway"
                f" {'paused' if self._gate.paused else 'open'}; allowed: paused, with none in flight"
            )
        self._serving[base_url] = model_version

    def state(self) -> dict[str, Any]:
        """What the gateway is doing and has done."""
        gate = self._gate
        return {
            "paused": gate.paused, "reason": gate.reason, "inflight": gate.in_flight, "waiting": gate.waiting,
            "rollouts": len(self._rollouts), **self.counters.snapshot(), "commits": self._appender.commits,
            "retried_alone": self._appender.retried_alone,
        }  # fmt: skip

    async def models(self, rollout_id: str | None) -> Answer:
        """What `/v1/models` answers: the registered upstream's own list, else the names that requests may ask for."""
        registered = self._registered.get(rollout_id or "")
        if not registered or self._session is None:
            data = [{"id": name, "object": "model", "owned_by": "tallystick"} for name in sorted(self._upstreams)]
            return Answer(200, dumps({"object": "list", "data": data}), {})
        upstream = next(iter(registered.values())).upstream
        headers = {} if upstream.api_key is None else {"Authorization": f"Bearer {upstream.api_key}"}
        try:
            timeout = aiohttp.ClientTimeout(total=30)
            async with self._session.get(f"{upstream.base_url}/models", headers=headers, timeout=timeout) as response:
                return Answer(response.status, await response.read(), {}, content_type=response.content_type)
        except (aiohttp.ClientError, OSError) as error:
            raise Refusal(502, "upstream_unreachable", f"{upstream.base_url}/models: {error}") from error

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """The answer to one chat completion.

        Raises:
            Refusal: it never became a call.
        """
        arrived = self._monotonic()
        chat = read_chat(await request.read(), request.headers)
        rollout = await self._rollout(request)
        participant, role, registration = self._who(rollout, chat)
        digest, retry_key, pending = self._recorder.identify(chat, participant, role)
        deadline = arrived + chat.wait_s
        while True:
            meant = await self._meant(rollout, chat, digest, retry_key)
            if rollout is not None and meant is not None and meant.status != "failed":
                return await self._repeat(request, chat, rollout, meant)
            if not self._gate.paused:
                break
            try:
                await self._gate.wait_open(max(0.0, deadline - self._monotonic()))
            except Refusal:
                if rollout is not None:
                    rollout.refuse(digest)
                raise
        if rollout is not None and rollout.closed:
            raise _closed(rollout.rollout_id)
        if self._exchange is None:
            raise Refusal(503, "interrupted", "the gateway is being stopped")
        upstream = self._upstream(rollout, participant, chat, registration)
        call_id = uuid7(self._random_bytes(10))
        entry = CallEntry(call_id, 0, digest, retry_key) if rollout is None else rollout.begin(call_id, digest, retry_key)
        if meant is not None:
            meant.resolved = True
            self.counters.retries += 1
        payload, entry.added = upstream_body(chat, upstream)
        facts = CallFacts(
            call_id, entry.index, None if rollout is None else rollout.rollout_id, participant, role, chat, upstream, entry.added,
            digest, retry_key, None if meant is None else meant.call_id,
            chat.correlation_id if registration is None else registration.correlation_id,
        )  # fmt: skip
        call = Call(facts, pending, payload, entry, rollout, arrived, Sink(request) if chat.stream else None)
        self._launch(call, self._exchange)
        return await self._listen(request, chat, entry, call.sink, {})

    async def _rollout(self, request: web.Request) -> RolloutEntry | None:
        rollout_id = request.match_info.get("rollout_id")
        if rollout_id is None:
            return None
        try:
            entry = await self._rollouts.entry(rollout_id)
        except UnknownId as error:
            raise Refusal(404, "unknown_rollout", str(error)) from error
        if entry.closed:
            raise _closed(rollout_id)
        attempt = request.match_info.get("attempt", "")
        if attempt.isdecimal() and int(attempt) != entry.attempt:
            raise Refusal(404, "unknown_rollout", f"rollout {rollout_id!r} is attempt {entry.attempt}; seen attempt {attempt}")
        return entry

    def _who(self, rollout: RolloutEntry | None, chat: ChatRequest) -> tuple[str, CallRole, _Registration | None]:
        if rollout is None:
            return chat.participant or "unknown", chat.role or "unknown", None
        registered = self._registered.get(rollout.rollout_id, {})
        name = chat.participant or next(iter(registered), rollout.participant)
        registration = registered.get(name)
        return name, chat.role or (registration.role if registration is not None else "agent"), registration

    def _upstream(self, rollout: RolloutEntry | None, participant: str, chat: ChatRequest, registration: _Registration | None) -> Upstream:
        if rollout is not None and registration is not None:
            upstream = self._registered.get(rollout.rollout_id, {}).get(participant, registration).upstream
        elif chat.model in self._upstreams:
            upstream = self._upstreams[chat.model]
        else:
            known = ", ".join(sorted(self._upstreams)) or "none; register the rollout and its participant with an upstream"
            raise Refusal(404, "unknown_model", f"model {chat.model!r} is not served here; known: {known}")
        serving = self._serving.get(upstream.base_url, upstream.model_version)
        return upstream if serving == upstream.model_version else replace(upstream, model_version=serving)

    async def _meant(self, rollout: RolloutEntry | None, chat: ChatRequest, digest: str, retry_key: str | None) -> CallEntry | None:
        if rollout is None or not (chat.retried or retry_key is not None):
            return None
        try:
            found = rollout.meant_by(digest, retry_key, retried=chat.retried)
            if found is None and rollout.truncated:
                older = (await self._rollouts.older(rollout)).meant_by(digest, retry_key, retried=chat.retried)
                found = rollout.meant_by(digest, retry_key, retried=chat.retried) or older
            return found
        except IdempotencyConflict as error:
            raise Refusal(422, "idempotency_conflict", str(error)) from error

    def _launch(self, call: Call, exchange: Exchange) -> None:
        self._gate.enter()
        self.counters.calls += 1
        self.counters.unattributed += call.rollout is None
        self._calls[call.facts.call_id] = call
        call.entry.task = asyncio.create_task(exchange.run(call))
        call.entry.task.add_done_callback(lambda _: self._landed(call))

    def _landed(self, call: Call) -> None:
        self._gate.leave()
        del self._calls[call.facts.call_id]
        call.entry.task = None
        if call.entry.status == "in_flight":
            call.entry.status = "failed"
        if call.rollout is not None:
            call.rollout.in_flight -= 1

    async def _listen(
        self, request: web.Request, chat: ChatRequest, entry: CallEntry, sink: Sink | None, headers: dict[str, str]
    ) -> web.StreamResponse:
        task = entry.task
        if task is None:
            raise LedgerUnavailable(f"call {entry.call_id} ended without an answer")
        entry.listeners += 1
        try:
            answer = await asyncio.shield(task)
        finally:
            entry.listeners -= 1
            if entry.listeners == 0 and not task.done():
                self._abandoned(self._calls[entry.call_id])
        response = await deliver(request, chat, answer, sink, headers)
        entry.delivered = entry.delivered or answer.status == 200
        return response

    def _abandoned(self, call: Call) -> None:
        if (call.sink is not None and call.sink.started) or (call.rollout is not None and call.rollout.closed):
            call.stop("client_aborted")
        else:
            asyncio.get_running_loop().call_later(self.limits.abandoned_s, _stop_if_unheard, call)

    async def _repeat(self, request: web.Request, chat: ChatRequest, rollout: RolloutEntry, meant: CallEntry) -> web.StreamResponse:
        meant.resolved = True
        headers = {"X-Tally-Replayed": "true"}
        if meant.task is not None:
            self.counters.coalesced += 1
            return await self._listen(request, chat, meant, None, headers)
        if meant.response is None:
            raise Refusal(503, "ledger_unavailable", f"the answer of call {meant.call_id} is not recorded yet")
        recorded = read_json(await asyncio.to_thread(self.ledger.blob, meant.response.blob_id))
        response = for_client(recorded, meant.added)
        self.counters.replayed += 1
        answer = Answer(200, dumps(response), {"X-Tally-Call-Id": meant.call_id, "X-Tally-Attempts": "0"}, response=response)
        sent = await deliver(request, chat, answer, None, headers)
        meant.delivered = True
        rollout.remember(meant)
        return sent


def _stop_if_unheard(call: Call) -> None:
    if call.entry.listeners == 0 and call.entry.status == "in_flight":
        call.stop("client_aborted")


def _closed(rollout_id: str) -> Refusal:
    return Refusal(409, "rollout_closed", f"rollout {rollout_id!r} has ended; nothing more is captured under its id")


if __name__ == "__main__":
    from training.rollout.gateway_command import main

    main()
