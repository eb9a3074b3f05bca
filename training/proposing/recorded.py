"""Asks models for proposals through the capture gateway, and answers again from the record. Serves HTTP, writes the ledger."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import Any, TypeVar

import aiohttp

from ledger.canonical import canonical_bytes, digest, parse
from ledger.errors import ModelCallFailed, NotRecorded
from ledger.events import ModelCallDispatched, ModelCalled
from ledger.events.model_call import CallRole
from ledger.ledger import LedgerHandle
from ledger.order import read_all
from training.rollout.gateway import Gateway, Upstream
from training.rollout.harness import CallFailed
from training.rollout.model_client import ModelClient, call_seed

ROLE: CallRole = "proposer"
T = TypeVar("T")


@dataclass(frozen=True)
class Asking:
    """Who is asked, for what.

    Attributes:
        run: what the calls belong to; their events carry it as correlation id.
        model: model name in requests.
        sampling: request fields such as temperature and max_tokens.
        seed: root of the calls' seeds, which depend on the run and each call's place in it.
        role: in which the model is asked.
    """

    run: str
    model: str
    sampling: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    role: CallRole = ROLE

    def request(self, messages: Sequence[Mapping[str, Any]], fields: Mapping[str, Any], index: int) -> bytes:
        """The bytes of the run's call number `index`: the same question at the same place is the same request."""
        body = {"model": self.model, "messages": [dict(message) for message in messages], **self.sampling, **fields}
        return canonical_bytes({**body, "stream": False, "seed": call_seed(self.seed, self.run, index)}, allow_nul=True)


class RecordedModel:
    """A model behind a gateway: each call is durable before its answer comes back.

    Attributes:
        asking: who is asked.
        counts: calls that were answered and that failed, by name.
    """

    def __init__(self, asking: Asking, loop: asyncio.AbstractEventLoop, client: ModelClient) -> None:
        self.asking, self._loop, self._client = asking, loop, client
        self.counts: Counter[str] = Counter()

    def __call__(self, messages: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]) -> str:
        """The text of the model's answer.

        Raises:
            ModelCallFailed: an error came instead; it is recorded.
        """
        request = self.asking.request(messages, fields, self.counts.total())
        try:
            answer = _wait(self._loop, self._client.send(request))
        except CallFailed as failed:
            self.counts["failed"] += 1
            raise ModelCallFailed(f"{self.asking.model}: {failed.reason}") from failed
        self.counts["answered"] += 1
        return answer.content or ""


class ReplayedModel:
    """The answers of a recorded run, in its place: the same requests get the same texts, and nothing is asked of anybody.

    Attributes:
        asking: who was asked.
        counts: calls that were answered and that failed, by name.
    """

    def __init__(self, asking: Asking, ledger: LedgerHandle) -> None:
        self.asking, self._ledger = asking, ledger
        self.counts: Counter[str] = Counter()
        self._answers = _record(ledger, asking)

    def __call__(self, messages: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]) -> str:
        """The text of the recorded answer.

        Raises:
            NotRecorded: the run holds no such request.
            ModelCallFailed: the call failed when it was made.
        """
        index = self.counts.total()
        request = self._ledger.pending(self.asking.request(messages, fields, index), media="application/json")
        key = digest([request.ref.blob_id, self.asking.role, self.asking.role])
        called = self._answers.get(key)
        if called is None:
            raise NotRecorded(
                f"call {index} of run {self.asking.run!r} is not among its {len(self._answers)} recorded calls: the question, the sampling"
                " or an answer before it is another than it was"
            )
        if called.status != "completed" or called.response is None:
            self.counts["failed"] += 1
            raise ModelCallFailed(f"{self.asking.model}: {called.status} when the run was recorded")
        self.counts["answered"] += 1
        message = parse(self._ledger.blob(called.response.blob_id))["choices"][0]["message"]
        return str(message.get("content") or "")


@contextmanager
def recorded(ledger: LedgerHandle, upstream: Upstream, asking: Asking) -> Iterator[RecordedModel]:
    """A model client whose calls are recorded under `asking.run` in the role of `asking`.

    Args:
        ledger: where the calls go.
        upstream: the OpenAI-compatible server.
        asking: who is asked, for what.
    Raises:
        LedgerUnavailable: the ledger cannot be written.
    """
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="proposing", daemon=True)
    thread.start()
    try:
        gateway, session = _wait(loop, _opened(ledger, {asking.model: upstream}))
        headers = {"X-Tally-Participant": asking.role, "X-Tally-Role": asking.role, "X-Tally-Correlation-Id": asking.run}
        client = ModelClient(
            session, gateway.base_url(None), asking.model, sampling={}, stream=False, strict_tools=False, seed_parts=(), headers=headers
        )
        try:
            yield RecordedModel(asking, loop, client)
        finally:
            _wait(loop, session.close())
            _wait(loop, gateway.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def replayed(ledger: LedgerHandle, asking: Asking) -> ReplayedModel:
    """A model client that answers from what a run recorded, and refuses what it did not."""
    return ReplayedModel(asking, ledger)


async def _opened(ledger: LedgerHandle, upstreams: Mapping[str, Upstream]) -> tuple[Gateway, aiohttp.ClientSession]:
    gateway = Gateway(ledger, upstreams)
    await gateway.start()
    return gateway, aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))


def _wait(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result()


def _record(ledger: LedgerHandle, asking: Asking) -> dict[str, ModelCalled]:
    """Request digest to what came of it, of all calls of a run."""
    ledger.barrier()
    requests: dict[str, str] = {}
    found: dict[str, ModelCalled] = {}
    for event in read_all(ledger.pool, ledger.project, kinds=["ModelCallDispatched", "ModelCalled"]):
        body = event.body
        if event.correlation_id != asking.run:
            continue
        if isinstance(body, ModelCallDispatched) and body.role == asking.role:
            requests[body.call_id] = body.request_digest
        elif isinstance(body, ModelCalled) and body.call_id in requests:
            found[requests[body.call_id]] = body
    return found
