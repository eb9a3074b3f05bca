"""Routes of the gateway: paths, the controls, and how answers and refusals are written to a client. Serves HTTP."""

import hmac
import math
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiohttp import web

from ledger.canonical import parse
from ledger.errors import BlobError, CanonicalError, LedgerUnavailable, WaitTimeout
from training.rollout.gateway_call import Counters, Limits, Sink
from training.rollout.gateway_metrics import CONTENT_TYPE, exposition
from training.rollout.gateway_request import Answer, ChatRequest, Refusal, error_body
from training.rollout.gateway_stream import dumps, replayed

PREFIXES = (
    "/v1",
    "/r/{rollout_id}/v1",
    "/ng-rollout/{rollout_id}/v1",
    "/ng-rollout/{rollout_id}/training-token-capture/v1",
    "/proxy/rollout/{rollout_id}/attempt/{attempt}/mode/{mode:train|val}/openai/v1",
)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Serves(Protocol):
    """What the routes need of a gateway."""

    limits: Limits
    counters: Counters
    control_token: str | None

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """The answer to a chat completion."""
        ...

    async def models(self, rollout_id: str | None) -> Answer:
        """The models that may be asked for."""
        ...

    async def pause(self, reason: str, *, retry_after_s: float = 1.0) -> float:
        """Seconds until nothing was in flight."""
        ...

    def resume(self) -> None:
        """Let calls in again."""
        ...

    def state(self) -> dict[str, Any]:
        """What the gateway is doing."""
        ...


def application(gateway: Serves) -> web.Application:
    """The web application of a gateway."""
    app = web.Application(client_max_size=gateway.limits.max_body_bytes, middlewares=[_refusals(gateway)])

    async def models(request: web.Request) -> web.StreamResponse:
        answer = await gateway.models(request.match_info.get("rollout_id"))
        return web.Response(status=answer.status, body=answer.body, content_type=answer.content_type)

    for prefix in PREFIXES:
        app.router.add_post(f"{prefix}/chat/completions", gateway.chat)
        app.router.add_get(f"{prefix}/models", models)
    _add_controls(app, gateway)
    return app


def _add_controls(app: web.Application, gateway: Serves) -> None:
    def guarded(handler: Handler) -> Handler:
        async def guard(request: web.Request) -> web.StreamResponse:
            token, seen = gateway.control_token, request.headers.get("Authorization", "")
            if token is not None and not hmac.compare_digest(seen.encode("utf-8", "replace"), f"Bearer {token}".encode()):
                raise Refusal(401, "unauthorised", "the controls need the gateway's control token as a bearer token")
            return await handler(request)

        return guard

    async def healthz(request: web.Request) -> web.StreamResponse:
        return _json({"status": "ok"})

    async def state(request: web.Request) -> web.StreamResponse:
        return _json(gateway.state())

    async def metrics(request: web.Request) -> web.StreamResponse:
        return web.Response(body=exposition(gateway.state()), headers={"Content-Type": CONTENT_TYPE})

    async def pause(request: web.Request) -> web.StreamResponse:
        reason, retry_after_s = _pause_options(await request.read())
        try:
            drain_s = await gateway.pause(reason, retry_after_s=retry_after_s)
        except WaitTimeout as error:
            raise Refusal(409, "resumed", str(error)) from error
        return _json({**gateway.state(), "drain_s": drain_s})

    async def resume(request: web.Request) -> web.StreamResponse:
        gateway.resume()
        return _json(gateway.state())

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/metrics", guarded(metrics))
    app.router.add_get("/control/state", guarded(state))
    app.router.add_post("/control/pause", guarded(pause))
    app.router.add_post("/control/resume", guarded(resume))


def _pause_options(raw: bytes) -> tuple[str, float]:
    try:
        options = parse(raw) if raw.strip() else {}
    except CanonicalError as error:
        raise Refusal(400, "invalid_request", str(error)) from error
    if not isinstance(options, dict):
        raise Refusal(400, "invalid_request", f"body is {type(options).__name__}; allowed: an object or nothing")
    reason, retry_after_s = options.get("reason", "paused"), options.get("retry_after_s", 1.0)
    if not isinstance(reason, str) or len(reason) > 200:
        raise Refusal(400, "invalid_request", f"reason is {ascii(reason)[:80]}; allowed: up to 200 characters")
    if isinstance(retry_after_s, bool) or not isinstance(retry_after_s, int | float) or not 0 <= retry_after_s < math.inf:
        raise Refusal(400, "invalid_request", f"retry_after_s is {ascii(retry_after_s)[:80]}; allowed: a number of seconds")
    return reason, float(retry_after_s)


def _refusals(gateway: Serves) -> Any:
    @web.middleware
    async def refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except Refusal as refusal:
            problem = refusal
        except web.HTTPRequestEntityTooLarge as error:
            problem = Refusal(413, "too_large", f"{error.text}; allowed: up to {gateway.limits.max_body_bytes} bytes")
        except web.HTTPMethodNotAllowed as error:
            problem = Refusal(405, "unknown_route", f"{request.method} {request.path}: allowed: {', '.join(sorted(error.allowed_methods))}")
        except web.HTTPNotFound:
            problem = Refusal(404, "unknown_route", f"{request.method} {request.path}: allowed: {', '.join(PREFIXES)} with"
                              " POST /chat/completions or GET /models; /healthz; /metrics; /control/state, pause, resume")  # fmt: skip
        except (LedgerUnavailable, BlobError) as error:
            problem = Refusal(503, "ledger_unavailable", f"nothing was acknowledged: {error}")
        gateway.counters.refused += 1
        headers = {"X-Tally-Error-Source": "gateway", **problem.headers}
        body = error_body(problem.kind, problem.message)
        return web.Response(status=problem.status, body=body, headers=headers, content_type="application/json")

    return refusals


async def deliver(
    request: web.Request, chat: ChatRequest, answer: Answer, sink: Sink | None, headers: dict[str, str]
) -> web.StreamResponse:
    """The response after the whole answer was written to the client: as the end of a stream that has begun, as a stream, or as JSON."""
    if sink is not None and sink.response is not None:
        await sink.write(answer.tail)
        if sink.detached:
            raise ConnectionResetError("the client left before the end of its stream")
        await sink.response.write_eof()
        return sink.response
    head = {**answer.headers, **headers}
    if chat.stream and answer.response is not None:
        body = replayed(answer.response, include_usage=chat.include_usage)
        response = web.Response(body=body, headers=head, content_type="text/event-stream", charset="utf-8")
    else:
        response = web.Response(status=answer.status, body=answer.body, headers=head, content_type=answer.content_type)
    await response.prepare(request)
    await response.write_eof()
    return response


def _json(value: dict[str, Any]) -> web.Response:
    return web.Response(body=dumps(value), content_type="application/json")
