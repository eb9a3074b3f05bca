"""Asks a model through the gateway for one rollout and reads its answer, streamed or not. Talks HTTP."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import aiohttp
import orjson

from ledger.ids import derived_id
from training.rollout.episode import Answer, CallFailed, SampledCall

PAUSE_WAIT_S = "600"


def call_seed(*parts: str | int) -> int:
    """A 31-bit seed that is a function of `parts`: run, round, group, sample, attempt, call."""
    return int(derived_id("seed", *parts).replace("-", "")[:8], 16) & 0x7FFFFFFF


class ModelClient:
    """One rollout's way to its model.

    Attributes:
        base_url: the gateway's URL for the rollout, ending in `/v1`.
        model: model name in requests.
        sampling: request fields such as temperature, top_p, max_tokens, tool_choice.
        stream: whether to stream; only then are tool arguments the text as it was sampled.
        strict_tools: whether tools are marked as strict.
        seed_parts: what a call's seed is a function of, beside its index.
        headers: further request headers, such as the role that asks.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        base_url: str,
        model: str,
        *,
        sampling: Mapping[str, Any],
        stream: bool,
        strict_tools: bool,
        seed_parts: Sequence[str | int],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.session, self.base_url, self.model = session, base_url, model
        self.headers = {"Content-Type": "application/json", "X-Tally-Wait": PAUSE_WAIT_S, **(headers or {})}
        self.sampling, self.stream, self.strict_tools, self.seed_parts = sampling, stream, strict_tools, seed_parts
        self._asked, self._again = -1, 0

    async def ask(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], index: int) -> Answer:
        """The model's answer; asked again for the index that it was asked for last, it is a retry of that call and marked as one.

        Raises:
            CallFailed: an error came instead, with whose it was.
        """
        self._asked, self._again = index, self._again + 1 if index == self._asked else 0
        body: dict[str, Any] = {"model": self.model, "messages": list(messages), "stream": self.stream, **self.sampling}
        body["seed"] = call_seed(*self.seed_parts, index)
        if tools:
            body["tools"] = [_strict(tool) for tool in tools] if self.strict_tools else list(tools)
        else:
            body.pop("tool_choice", None)
        if self.stream:
            body["stream_options"] = {"include_usage": True}
        return await self.send(orjson.dumps(body), retries=self._again)

    async def send(self, body: bytes, *, retries: int = 0) -> Answer:
        """The model's answer to the bytes of a request, which was sent `retries` times before.

        Raises:
            CallFailed: an error came instead, with whose it was.
        """
        headers = self.headers if retries == 0 else {**self.headers, "x-stainless-retry-count": str(retries)}
        try:
            async with self.session.post(f"{self.base_url}/chat/completions", data=body, headers=headers) as response:
                if response.status != 200:
                    raise _failed(response.status, response.headers.get("X-Tally-Error-Source", "gateway"), await response.read())
                answer = await (_streamed(response) if self.stream else _whole(response))
                return replace(answer, model_call_id=response.headers.get("X-Tally-Call-Id"))
        except aiohttp.ClientError as error:
            raise CallFailed("harness_error", "gateway", "the gateway broke off", repr(error)) from error


def _strict(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    return {**tool, "function": {**function, "strict": True, "parameters": {**function["parameters"], "additionalProperties": False}}}


def _answer(content: str | None, calls: tuple[SampledCall, ...], finish: str | None, usage: Any) -> Answer:
    counted = usage if isinstance(usage, dict) else {}
    prompt, sampled = counted.get("prompt_tokens"), counted.get("completion_tokens")
    return Answer(content, calls, finish, None, prompt_tokens=prompt, sampled_tokens=sampled)


async def _whole(response: aiohttp.ClientResponse) -> Answer:
    body = orjson.loads(await response.read())
    choice = body["choices"][0]
    calls = tuple(
        SampledCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in choice["message"].get("tool_calls") or ()
    )
    return _answer(choice["message"].get("content"), calls, choice.get("finish_reason"), body.get("usage"))


async def _streamed(response: aiohttp.ClientResponse) -> Answer:
    text: list[str] = []
    calls: dict[int, dict[str, str]] = {}
    finish: str | None = None
    usage: Any = None
    done = False
    async for line in response.content:
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            done = True
            continue
        chunk = orjson.loads(data)
        if "error" in chunk:
            # The gateway names itself in its own errors; one without a source was passed on from the engine.
            raise _failed(502, str(chunk["error"].get("source", "engine")), data)
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices", ()):
            delta = choice.get("delta") or {}
            text.append(delta.get("content") or "")
            finish = choice.get("finish_reason") or finish
            for part in delta.get("tool_calls") or ():
                call = calls.setdefault(part["index"], {"id": "", "name": "", "arguments": ""})
                function = part.get("function") or {}
                call["id"] += part.get("id") or ""
                call["name"] += function.get("name") or ""
                call["arguments"] += function.get("arguments") or ""
    if not done:
        raise CallFailed("harness_error", "gateway", "the stream ended without its end mark", "")
    sampled = tuple(SampledCall(call["id"], call["name"], call["arguments"]) for _, call in sorted(calls.items()))
    return _answer("".join(text) or None, sampled, finish, usage)


def _failed(status: int, source: str, body: bytes) -> CallFailed:
    text = body.decode("utf-8", "replace")
    if status == 400 and ("input_tokens" in text or "maximum context length" in text):
        return CallFailed("context_full", "policy", "the conversation no longer fits the model's context", text)
    if source in ("engine", "provider"):
        return CallFailed("engine_error", "engine", f"HTTP {status} from the {source}", text, status=status)
    return CallFailed("harness_error", "gateway", f"HTTP {status} from the {source}", text)
