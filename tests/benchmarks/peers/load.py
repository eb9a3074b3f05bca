"""A load of agents: each caller plays rollouts turn by turn over a kept-alive connection. Speaks HTTP; prints one line of JSON.

A target is one rollout: `{"url": …/chat/completions, "headers": {…}}`; its conversation grows by the answer and an observation a turn, and begins with the
rollout's number, so no two requests are alike. When the targets are used up the callers stop, and `exhausted` says so.
"""

import argparse
import asyncio
import itertools
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from stub_upstream import reply_text

SYSTEM = "You are a careful agent. " + "Think, then act with one tool at a time. " * 16
TASK = " Fix the failing test of the ticket desk. " + "The ticket was reopened by the customer. " * 24
OBSERVATION = "exit code 1: " + "assert status == closed; " * 12
MARK = "@rollout@"


def bodies(turns: int, sampled_tokens: int, *, ask_ids: bool) -> list[tuple[bytes, bytes]]:
    """Request bodies by turn, each in two halves around the rollout's number."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"Rollout {MARK}.{TASK}"}]
    extra: dict[str, Any] = {"return_token_ids": True, "logprobs": True, "top_logprobs": 0} if ask_ids else {}
    result = []
    for _ in range(turns):
        body = {"model": "stub", "temperature": 1.0, "max_tokens": sampled_tokens, **extra, "messages": messages}
        before, _, after = json.dumps(body, separators=(",", ":")).encode().partition(MARK.encode())
        result.append((before, after))
        messages = [*messages, {"role": "assistant", "content": reply_text(sampled_tokens)}, {"role": "user", "content": OBSERVATION}]
    return result


@dataclass
class Load:
    """A run of callers and what came of it.

    Attributes:
        targets: rollouts with their numbers, taken one after the other.
        bodies: by turn.
        calls: stop after so many answers, None for no end.
        stop_at: stop at this `perf_counter`, None for no end.
        kill: process to end with SIGKILL after so many answers: (pid, answers).
    """

    targets: Iterator[tuple[int, dict[str, Any]]]
    bodies: list[tuple[bytes, bytes]]
    calls: int | None
    stop_at: float | None
    kill: tuple[int, int] | None
    latencies: list[float] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    rollouts: int = 0
    started: int = 0
    errors: int = 0
    first_error: str | None = None
    exhausted: bool = False
    killed: bool = False

    def may_go_on(self) -> bool:
        """Whether another call shall be made."""
        if self.killed or (self.calls is not None and self.started >= self.calls):
            return False
        return self.stop_at is None or time.perf_counter() < self.stop_at

    async def caller(self) -> None:
        """Play rollouts until it is over."""
        connection: _Connection | None = None
        while self.may_go_on():
            number, target = next(self.targets, (0, None))
            if target is None:
                self.exhausted = True
                break
            self.rollouts += 1
            connection = await self._play(connection, number, target)
        if connection is not None:
            connection.writer.close()

    async def _play(self, connection: "_Connection | None", number: int, target: dict[str, Any]) -> "_Connection | None":
        head = _head(target)
        for before, after in self.bodies:
            if not self.may_go_on():
                break
            body = b"%b%08d%b" % (before, number, after)
            self.started += 1
            began = time.perf_counter()
            try:
                if connection is None:
                    connection = await _Connection.open(target["url"])
                status, headers, answer = await connection.ask(head, body)
            except (OSError, EOFError) as error:
                connection = None
                if not self.killed:
                    self._error(f"{type(error).__name__}: {error}")
                continue
            if status != 200:
                self._error(f"{status}: {answer[:300].decode(errors='replace')}")
                continue
            self._count(time.perf_counter() - began, headers)
        return connection

    def _count(self, latency_s: float, headers: bytes) -> None:
        self.latencies.append(latency_s)
        _, found, rest = headers.partition(b"x-tally-call-id: ")
        self.acknowledged.append(rest.split(b"\r\n", 1)[0].decode() if found else "")
        if self.kill is not None and not self.killed and len(self.latencies) >= self.kill[1]:
            self.killed = True
            os.kill(self.kill[0], signal.SIGKILL)

    def _error(self, message: str) -> None:
        self.errors += 1
        self.first_error = self.first_error or message


@dataclass
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def open(cls, url: str) -> "_Connection":
        parts = urlsplit(url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port, limit=2**24))

    async def ask(self, head: bytes, body: bytes) -> tuple[int, bytes, bytes]:
        """Status, headers in lower case, body."""
        self.writer.write(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
        got = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        _, found, rest = got.partition(b"content-length: ")
        if not found:
            raise OSError(f"an answer without Content-Length: {got[:200]!r}")
        return int(got[9:12]), got, await self.reader.readexactly(int(rest.split(b"\r\n", 1)[0]))


def _head(target: dict[str, Any]) -> bytes:
    parts = urlsplit(target["url"])
    lines = [f"POST {parts.path} HTTP/1.1", f"Host: {parts.netloc}", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in target.get("headers", {}).items()]
    return ("\r\n".join(lines) + "\r\n").encode()


def quantile(values: list[float], share: float) -> float | None:
    """The value that this share of `values` does not exceed, in ms; None without values."""
    return None if not values else 1000 * sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def main(options: argparse.Namespace) -> dict[str, Any]:
    """What the load measured."""
    listed = json.loads(Path(options.targets).read_text())[options.first :] if options.targets else itertools.repeat({"url": options.url})
    turns = bodies(options.turns, options.sampled_tokens, ask_ids=options.ask_ids)
    began = time.perf_counter()
    load = Load(
        iter(enumerate(listed, options.first)), turns, options.calls, None if options.seconds is None else began + options.seconds,
        None if options.kill is None else (options.kill, options.kill_after),
    )  # fmt: skip
    await asyncio.gather(*(load.caller() for _ in range(options.callers)))
    seconds = time.perf_counter() - began
    if options.acknowledged:
        Path(options.acknowledged).write_text(json.dumps(load.acknowledged))
    return {
        "calls": len(load.latencies), "errors": load.errors, "first_error": load.first_error, "seconds": seconds,
        "calls_per_s": len(load.latencies) / seconds, "p50_ms": quantile(load.latencies, 0.5), "p99_ms": quantile(load.latencies, 0.99),
        "rollouts": load.rollouts, "exhausted": load.exhausted, "killed": load.killed,
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", help="file with a JSON list of targets")
    parser.add_argument("--url", help="one target for ever, instead of a list")
    parser.add_argument("--first", type=int, default=0, help="number of the first target to use")
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--sampled-tokens", type=int, default=50)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--calls", type=int)
    parser.add_argument("--ask-ids", action="store_true", help="ask for token ids and logprobs, as a trainer's own harness does")
    parser.add_argument("--kill", type=int, help="pid to end with SIGKILL")
    parser.add_argument("--kill-after", type=int, default=1000, help="answers before that")
    parser.add_argument("--acknowledged", help="file for the X-Tally-Call-Id of every answer")
    print(json.dumps(asyncio.run(main(parser.parse_args()))))
