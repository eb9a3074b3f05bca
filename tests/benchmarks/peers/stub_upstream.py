"""An upstream with vLLM's chat completions and nothing behind them, so that what stands before it is measured. Serves HTTP.

It prints `{"url": …, "pid": …}` and serves until it is ended. Like vLLM it gives token ids only to who asks for them (`return_token_ids`); `GET /` tells how
many answers it gave. No framework: it must never be what limits a measurement. It knows requests with a Content-Length, and no streams.
"""

import argparse
import asyncio
import json
import os
import random

# Numbers that appear nowhere else in the template; each answer has its own there, so that no two are the same bytes.
VARIED = {"@id@": b"%016x", "900001": b"1%05d", "900002": b"1%05d", "-9.00001": b"-0.1%05d", "900003": b"1%05d", "900004": b"1%05d"}


def reply(sampled_tokens: int) -> list[tuple[str, float]]:
    """Text and logprob of each token that is always answered."""
    draw = random.Random(0)
    return [(" " + "".join(draw.choices("etaoinshrdlu", k=draw.randint(2, 6))), -draw.expovariate(3.0)) for _ in range(sampled_tokens)]


def reply_text(sampled_tokens: int) -> str:
    """The text that is always answered."""
    return "".join(text for text, _ in reply(sampled_tokens))


def answer(prompt_tokens: int, sampled_tokens: int, *, with_ids: bool) -> bytes:
    """JSON of vLLM's answer, with `%` places for what varies."""
    if prompt_tokens < 2 or sampled_tokens < 2:
        raise ValueError(f"{prompt_tokens} prompt and {sampled_tokens} sampled tokens; allowed: at least 2 of each")
    sampled = [
        {"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": []} for text, logprob in reply(sampled_tokens)
    ]
    sampled[0]["logprob"] = -9.00001
    draw = random.Random(1)
    prompt_ids = [900001, 900002, *(draw.randrange(150000) for _ in range(prompt_tokens - 2))]
    sampled_ids = [900003, 900004, *(draw.randrange(150000) for _ in range(sampled_tokens - 2))]
    choice = {
        "index": 0,
        "message": {
            "role": "assistant", "content": reply_text(sampled_tokens), "refusal": None, "annotations": None, "audio": None,
            "function_call": None, "tool_calls": [], "reasoning": None,
        },
        "logprobs": {"content": sampled} if with_ids else None,
        "finish_reason": "stop", "stop_reason": None,
        "token_ids": sampled_ids if with_ids else None,
    }  # fmt: skip
    body = {
        "id": "chatcmpl-@id@", "object": "chat.completion", "created": 1700000000, "model": "stub", "choices": [choice],
        "service_tier": None, "system_fingerprint": None,
        "usage": {
            "prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens + sampled_tokens, "completion_tokens": sampled_tokens,
            "prompt_tokens_details": None,
        },
        "prompt_logprobs": None,
        "prompt_token_ids": prompt_ids if with_ids else None,
        "kv_transfer_params": None,
    }  # fmt: skip
    template = json.dumps(body, separators=(",", ":")).encode()
    for mark, place in VARIED.items():
        template = template.replace(mark.encode(), place)
    return template


class Stub(asyncio.Protocol):
    """One connection; keeps it alive."""

    answers = 0

    def __init__(self, plain: bytes, with_ids: bytes, latency_s: float) -> None:
        self.plain, self.with_ids, self.latency_s = plain, with_ids, latency_s
        self.buffer = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            at = head.find(b"content-length:")
            if at < 0 and not head.startswith(b"get "):
                self._send(b"411 Length Required", b"{}")
                return
            length = 0 if at < 0 else int(head[at + 15 :].split(b"\r\n", 1)[0])
            if len(self.buffer) < end + 4 + length:
                return
            body = self.buffer[end + 4 : end + 4 + length]
            self.buffer = self.buffer[end + 4 + length :]
            if head.startswith(b"get "):
                self._send(b"200 OK", b'{"answers": %d}' % Stub.answers)
            else:
                self._answer(body)

    def _answer(self, body: bytes) -> None:
        n = Stub.answers = Stub.answers + 1
        low, high = n % 100000, n // 100000 % 100000
        if b'"return_token_ids":true' in body or b'"return_token_ids": true' in body:
            out = self.with_ids % (n, low, low, high, low, high)
        else:
            out = self.plain % n
        if self.latency_s:
            asyncio.get_running_loop().call_later(self.latency_s, self._send, b"200 OK", out)
        else:
            self._send(b"200 OK", out)

    def _send(self, status: bytes, body: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
            self.transport.write(head + body)


async def main(prompt_tokens: int, sampled_tokens: int, latency_s: float) -> None:
    """Serve for ever."""
    plain = answer(prompt_tokens, sampled_tokens, with_ids=False)
    with_ids = answer(prompt_tokens, sampled_tokens, with_ids=True)
    server = await asyncio.get_running_loop().create_server(lambda: Stub(plain, with_ids, latency_s), "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"url": f"http://127.0.0.1:{port}/v1", "pid": os.getpid(), "answer_bytes": len(with_ids)}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompt-tokens", type=int, default=500)
    parser.add_argument("--sampled-tokens", type=int, default=50)
    parser.add_argument("--latency-s", type=float, default=0.0)
    options = parser.parse_args()
    asyncio.run(main(options.prompt_tokens, options.sampled_tokens, options.latency_s))
