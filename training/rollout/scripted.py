"""Scripted policies behind an OpenAI-compatible server, so that they leave the same trace as any model. Serves HTTP."""

import asyncio
import math
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from aiohttp import web

from training.rollout.gateway_stream import DONE, dumps, event
from training.rollout.gateway_upstream import Upstream
from training.rollout.scripts import Reply, Scripts, Unscripted
from training.worlds import AssistantTurn

STOP_TOKEN = 256
TOKENS_A_CHUNK = 4


@dataclass
class Fault:
    """What goes wrong with the next answers, on purpose.

    Attributes:
        times: how many requests it befalls.
        status: answer with this HTTP status instead; `body` goes with it.
        delay_s: wait before answering.
        gate: wait for this before answering.
        chunk_gate: wait for this before the chunk with the finish reason.
        break_after: drop the connection after so many chunks, or at once without streaming.
        error_after: send an error event after so many chunks and end the stream.
        extra_ids: leave so many more ids than `usage` counts.
        nan_logprob: write NaN as the first logprob.
        drop: names to leave out: token_ids, prompt_token_ids, logprobs, usage, choices.
    """

    times: int = 1
    status: int | None = None
    body: bytes = b'{"error": {"message": "planted", "type": "planted"}}'
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    gate: asyncio.Event | None = None
    chunk_gate: asyncio.Event | None = None
    break_after: int | None = None
    error_after: int | None = None
    extra_ids: int = 0
    nan_logprob: bool = False
    drop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Received:
    """A request as the server got it."""

    body: bytes
    headers: dict[str, str]


class ScriptedServer(Scripts):
    """Scripts behind a server, which can plant faults.

    With `token_mode` it also answers in vLLM's shape, with the UTF-8 bytes of the text as token ids.

    Attributes:
        base_url: address up to and including `/v1`.
        requests: number of chat completions received.
        received: the last of them, where `keep` is positive.
    """

    def __init__(
        self, *, host: str = "127.0.0.1", port: int = 0, model: str = "scripted", token_mode: bool = False, final_text: str = "Done.",
        keep: int = 0,
    ) -> None:  # fmt: skip
        self.base_url = ""
        super().__init__(final_text=final_text)
        self.model, self.token_mode = model, token_mode
        self.requests = 0
        self.received: list[Received] = []
        self.aborted = 0
        self._keep = keep
        self._host, self._port = host, port
        self._faults: dict[str | None, Fault] = {}
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> "ScriptedServer":
        app = web.Application(client_max_size=128 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port, backlog=4096).start()
        self.base_url = f"http://{self._host}:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def fault(self, rollout_id: str | None, fault: Fault) -> None:
        """Plant a fault in a rollout's next answers."""
        self._faults[rollout_id] = fault

    def upstream(self, model_version: str, *, timeout_s: float = 600.0) -> Upstream:
        """This server as an upstream of the gateway."""
        if self.token_mode:
            return Upstream(self.base_url, model_version, "vllm", logprobs_mode="processed_logprobs", timeout_s=timeout_s)
        return Upstream(self.base_url, model_version, "scripted", timeout_s=timeout_s)

    async def _models(self, request: web.Request) -> web.Response:
        model = {"id": self.model, "object": "model", "owned_by": "tallystick"}
        return web.Response(body=dumps({"object": "list", "data": [model]}), content_type="application/json")

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        raw = await request.read()
        if self._keep:
            self.received = [*self.received[-self._keep + 1 :], Received(raw, dict(request.headers))]
        rollout_id = request.headers.get("X-Tally-Rollout-Id")
        fault = self._fault_for(rollout_id)
        try:
            if fault.gate is not None:
                await fault.gate.wait()
            await asyncio.sleep(fault.delay_s)
        except asyncio.CancelledError:
            self.aborted += 1
            raise
        if fault.status is not None:
            return web.Response(status=fault.status, body=fault.body, headers=fault.headers, content_type="application/json")
        try:
            reply = self.reply(rollout_id, request.headers.get("X-Tally-Role", ""), raw)
        except Unscripted as error:
            return web.Response(status=error.status, body=error.body, content_type="application/json")
        body, response = reply.request, self._response(reply, fault)
        if body.get("stream") is not True:
            if fault.break_after is not None and request.transport is not None:
                request.transport.close()
            return web.Response(body=_bytes(response), content_type="application/json")
        return await self._stream(request, body, response, fault)

    def _fault_for(self, rollout_id: str | None) -> Fault:
        fault = self._faults.get(rollout_id)
        if fault is None or fault.times == 0:
            return Fault()
        fault.times -= 1
        return fault

    def _response(self, reply: Reply, fault: Fault) -> dict[str, Any]:
        response = reply.response
        if self.token_mode:
            _add_tokens(response, reply.request, reply.turn, fault)
        choice = response["choices"][0]
        for name in fault.drop:
            (choice if name in choice else response).pop(name, None)
        return response

    async def _stream(self, request: web.Request, body: dict[str, Any], response: dict[str, Any], fault: Fault) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        usage_wanted = (body.get("stream_options") or {}).get("include_usage") is True
        chunks = _chunks(response, usage_wanted=usage_wanted)
        try:
            for at, chunk in enumerate(chunks):
                if at == fault.break_after and request.transport is not None:
                    request.transport.close()
                    return stream
                if at == fault.error_after:
                    await stream.write(event(fault.body))
                    return stream
                if fault.chunk_gate is not None and chunk["choices"] and chunk["choices"][0].get("finish_reason") is not None:
                    await fault.chunk_gate.wait()
                await stream.write(event(_bytes(chunk)))
            await stream.write(DONE)
        except (asyncio.CancelledError, ConnectionError):
            self.aborted += 1
            raise
        return stream


def _add_tokens(response: dict[str, Any], body: dict[str, Any], turn: AssistantTurn, fault: Fault) -> None:
    choice = response["choices"][0]
    text = (turn.content or "") + "".join(f"{name}{arguments}" for name, arguments in turn.tool_calls)
    ids = [*text.encode("utf-8", "replace"), STOP_TOKEN]
    prompt = list(dumps(body["messages"]))
    response["usage"] = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)}
    if body.get("return_token_ids") is True:
        response["prompt_token_ids"] = prompt
        choice["token_ids"] = ids + [0] * fault.extra_ids
    if body.get("logprobs") is True:
        values = [-0.25 - (token % 8) / 8 for token in ids]
        if fault.nan_logprob:
            values[0] = math.nan
        content = [{"token": f"token_id:{token}", "logprob": value} for token, value in zip(ids, values, strict=True)]
        choice["logprobs"] = {"content": content}


def _chunks(response: dict[str, Any], *, usage_wanted: bool) -> list[dict[str, Any]]:
    head = {key: response.get(key) for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    choice = response["choices"][0]
    message = choice["message"]
    first: dict[str, Any] = {**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
    if "prompt_token_ids" in response:
        first["prompt_token_ids"] = response["prompt_token_ids"]
    text = message["content"] or ""
    deltas: list[dict[str, Any]] = [{"content": text[at : at + TOKENS_A_CHUNK]} for at in range(0, len(text), TOKENS_A_CHUNK)]
    deltas += [{"tool_calls": [{"index": at, **call}]} for at, call in enumerate(message.get("tool_calls", []))]
    ids = choice.get("token_ids")
    logprobs = choice.get("logprobs", {}).get("content")
    if ids is not None:
        deltas += [{} for _ in range(math.ceil(len(ids) / TOKENS_A_CHUNK) - len(deltas))]
    deltas = deltas or [{}]
    chunks = [first]
    for at, delta in enumerate(deltas):
        last = at == len(deltas) - 1
        part: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": choice["finish_reason"] if last else None}
        span = slice(at * TOKENS_A_CHUNK, None if last else (at + 1) * TOKENS_A_CHUNK)
        if ids is not None:
            part["token_ids"] = ids[span]
        if logprobs is not None:
            part["logprobs"] = {"content": logprobs[span]}
        chunks.append({**head, "choices": [part]})
    if usage_wanted and "usage" in response:
        chunks.append({**head, "choices": [], "usage": response["usage"]})
    return chunks


def _bytes(value: dict[str, Any]) -> bytes:
    """JSON in which a planted NaN stays one."""
    data = dumps(value)
    planted = [entry["logprob"] for c in value.get("choices", []) for entry in ((c.get("logprobs") or {}).get("content") or [])]
    return data.replace(b'"logprob":null', b'"logprob":NaN', 1) if any(math.isnan(v) for v in planted) else data
