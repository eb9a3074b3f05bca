"""A gateway over a real ledger and a real server that answers in vLLM's shape, all on sockets."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp
import pytest

from ledger.events import ModelCallDispatched, ModelCalled, Participant, RolloutEnded, RolloutStarted
from ledger.events.model_call import call_stream
from ledger.ledger import LedgerHandle, open_ledger
from ledger.token_calls import TokenCall
from ledger.token_reading import read_tokens, streams_of
from tests.conftest import Cluster
from training.rollout.gateway import Gateway, Limits
from training.rollout.scripted import ScriptedServer
from training.worlds import AssistantTurn

T = TypeVar("T")
ASK = [{"role": "user", "content": "List the open tickets."}]
TURNS = [AssistantTurn("To list them.", (("query_tickets", '{"priority": "P1"}'),)), AssistantTurn("All mailed.")]


@dataclass
class Reply:
    """A client's view of an answer."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.raw)

    @property
    def events(self) -> list[Any]:
        """The body as the data of server-sent events; `[DONE]` as the string."""
        blocks = [block.removeprefix("data: ") for block in self.raw.decode().split("\n\n") if block]
        return [block if block == "[DONE]" else json.loads(block) for block in blocks]

    @property
    def error_type(self) -> str:
        """Type of the error in the body."""
        return str(self.json["error"]["type"])


@dataclass
class Rig:
    """A gateway with what is around it."""

    ledger: LedgerHandle
    server: ScriptedServer
    gateway: Gateway
    http: aiohttp.ClientSession
    started: int = 0
    closing: list[Any] = field(default_factory=list)

    def start_rollout(self, *, attempt: int = 1, register: bool = True) -> str:
        """Id of a rollout whose start is in the ledger and whose script is set."""
        self.started += 1
        rollout_id = f"r{self.started:04}"
        start_rollout(self.ledger, rollout_id, attempt=attempt)
        self.server.script(rollout_id, TURNS)
        if register:
            self.gateway.register(rollout_id, self.server.upstream("model-1"))
        return rollout_id

    async def restart(self) -> None:
        """Stop the gateway and start another one on the same ledger."""
        await self.gateway.stop()
        self.gateway = await Gateway(self.ledger, {"tiny": self.server.upstream("model-1")}, limits=self.gateway.limits).__aenter__()
        self.closing.append(self.gateway)

    async def chat(self, rollout_id: str | None, *, base: str | None = None, headers: dict[str, str] | None = None, **fields: Any) -> Reply:
        """The reply to a chat completion."""
        body = json.dumps({"model": "tiny", "messages": ASK, **fields}).encode()
        return await self.post(base or self.gateway.base_url(rollout_id), body, headers)

    async def post(self, base: str, body: bytes, headers: dict[str, str] | None = None) -> Reply:
        """The reply to these bytes."""
        async with self.http.post(f"{base}/chat/completions", data=body, headers=headers) as response:
            return Reply(response.status, dict(response.headers), await response.read())

    async def control(self, method: str, path: str, **fields: Any) -> Any:
        """JSON that a control answers."""
        async with self.http.request(method, f"{self.gateway.url}{path}", data=json.dumps(fields)) as response:
            return await response.json()

    def intents(self, rollout_id: str) -> list[ModelCallDispatched]:
        """Intents in a rollout's stream."""
        return [e for e in self._stream(rollout_id) if isinstance(e, ModelCallDispatched)]

    def called(self, rollout_id: str) -> list[ModelCalled]:
        """Results in a rollout's stream."""
        return [e for e in self._stream(rollout_id) if isinstance(e, ModelCalled)]

    def tokens(self, rollout_id: str | None = None, call_id: str = "") -> list[TokenCall]:
        """Arrays of a rollout's calls in the order in which they were recorded, or of a call that belongs to none; checked."""
        events = [e for e in self.ledger.read_stream(call_stream(rollout_id, call_id)) if e.kind == "ModelCalled"]
        with self.ledger.connection() as conn:
            found = read_tokens(conn, streams_of(conn, [event.event_id for event in events]))
        return [found[event.event_id] for event in events]

    def _stream(self, rollout_id: str) -> list[Any]:
        return [recorded.body for recorded in self.ledger.read_stream(f"rollout-{rollout_id}")]

    async def until(self, seen: Callable[[], T], *, within_s: float = 10.0) -> T:
        """What `seen` returns once it is true."""
        deadline = asyncio.get_running_loop().time() + within_s
        while not (value := await asyncio.to_thread(seen)):
            assert asyncio.get_running_loop().time() < deadline, "did not happen in time"
            await asyncio.sleep(0.01)
        return value


def start_rollout(ledger: LedgerHandle, rollout_id: str, *, attempt: int = 1) -> None:
    """Append the start of a rollout."""
    who = Participant(name="policy", role="agent", model_version="model-1", endpoint="http://x", sampling={}, trainable=True)
    body = RolloutStarted(
        rollout_id=rollout_id,
        group_id="g1",
        bundle_id="0" * 64,
        slot=0,
        attempt=attempt,
        rollout_kind="ordinary",
        participants=[who],
        seed=1,
    )
    ledger.append([ledger.new(body)])


def end_rollout(ledger: LedgerHandle, rollout_id: str) -> None:
    """Append the end of a rollout."""
    body = RolloutEnded(
        rollout_id=rollout_id, ended_by="finished", boundary="policy", reason="", model_calls=0, tool_calls=0, calls_digest="0" * 64,
        wall_s=0.0, sampling_s=0.0, tool_s=0.0,
    )  # fmt: skip
    ledger.append([ledger.new(body)])


@pytest.fixture(scope="module")
def shared_url(cluster: Cluster) -> Iterator[str]:
    """One database for the tests of a file."""
    url = cluster.migrated_database()
    yield url
    cluster.drop(url)


@pytest.fixture
def ledger(shared_url: str) -> Iterator[LedgerHandle]:
    """A ledger whose project is the test's own."""
    with open_ledger(shared_url, project=f"test-{secrets.token_hex(6)}", actor_id="tester") as handle:
        yield handle


@pytest.fixture
async def make_rig(ledger: LedgerHandle) -> AsyncIterator[Callable[..., Awaitable[Rig]]]:
    """Makes rigs with other limits or another kind of server."""
    closing: list[Any] = []

    async def make(*, token_mode: bool = True, **limits: Any) -> Rig:
        server = await ScriptedServer(token_mode=token_mode, keep=50).__aenter__()
        closing.append(server)
        settings = Limits(**{"connect_pause_s": 0.01, "abandoned_s": 0.3, **limits})
        gateway = await Gateway(ledger, {"tiny": server.upstream("model-1")}, limits=settings).__aenter__()
        closing.append(gateway)
        http = await aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)).__aenter__()
        closing.append(http)
        server.script(None, TURNS)
        return Rig(ledger, server, gateway, http, closing=closing)

    yield make
    for item in reversed(closing):
        await item.__aexit__(None, None, None)


@pytest.fixture
async def rig(make_rig: Callable[..., Awaitable[Rig]]) -> Rig:
    """A gateway before a server in vLLM's shape."""
    return await make_rig()
