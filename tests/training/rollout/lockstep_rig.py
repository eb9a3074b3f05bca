"""A site for collections on the torch engine: conversations of several user turns in the tests' library, and an HTTP twin of the engine."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from ledger.appender import Appender
from ledger.bundle import Bundle, BundleDraft
from ledger.events import RolloutEnded, RolloutStarted
from ledger.ledger import LedgerHandle
from ledger.token_reading import read_tokens, streams_of
from tests.tiny_policy import tiny_policy
from tests.tiny_world import LIBRARY, Library
from training.rollout.collect import Group, Run, Site
from training.rollout.completion import completion
from training.rollout.gateway import Gateway, Upstream
from training.rollout.harness import tool_loop
from training.rollout.policies import Policy
from training.rollout.sampling_calls import SampleRequest, settings_of
from training.rollout.scripted import ScriptedServer
from training.rollout.torch_engine import TorchEngine

RUN = Run("run-1", "experiment-1", 0, 7)
HARNESS = tool_loop(calls_per_turn=3, calls=20, max_tokens=48)


def policy(**sampling: Any) -> Policy:
    """The tiny policy with its way of sampling."""
    return Policy("tiny", "tiny", "tiny-1", sampling={"temperature": 1.0, **sampling}, trainable=True, stream=False)


def groups(count: int, size: int, who: Policy, *, turns: int = 3) -> list[Group]:
    """Groups of conversations, no two alike."""
    made = []
    for n in range(count):
        said = [[{"role": "user", "content": f"w{n} w{turn} w{n + turn} w5"}] for turn in range(turns)]
        draft = BundleDraft(f"task-{n}", "library", {"system": "w1 w2", "turns": said}, LIBRARY)
        made.append(Group(Bundle(draft, Library.version, "0" * 64, HARNESS.harness_id), who, size))
    return made


def tiny_engine(folder: Path) -> TorchEngine:
    """An engine that serves the tiny policy."""
    engine = TorchEngine("tiny-engine")
    # Half of the words end an answer, so that answers are short and few are cut.
    engine.serve(tiny_policy(folder, eos_token_id=[1, *range(8, 40)]), "tiny-1")
    return engine


@asynccontextmanager
async def site(ledger: LedgerHandle, upstream: Upstream | None = None) -> AsyncIterator[Site]:
    """A site, whose gateway asks `upstream`."""
    appender = Appender(ledger)
    async with ScriptedServer() as scripted, Gateway(ledger, appender=appender) as gateway:
        upstreams = {} if upstream is None else {"tiny-1": upstream}
        yield Site(ledger, appender, gateway, scripted, {"library": Library()}, HARNESS, upstreams)
    await appender.close()


@asynccontextmanager
async def served_over_http(engine: TorchEngine) -> AsyncIterator[Upstream]:
    """The engine as a server in vLLM's shape, one request at a time."""
    lock = asyncio.Lock()

    async def chat(request: web.Request) -> web.Response:
        body = orjson.loads(await request.read())
        key = request.headers["X-Tally-Rollout-Id"]
        wanted = SampleRequest(key, engine.prompt_ids(body["messages"], body["tools"]), body["seed"], settings_of(body))
        async with lock:
            sample = engine.sample([wanted])[0]
        answer = completion(engine, wanted, sample, model=body["model"], call_id=request.headers["X-Tally-Call-Id"], created=0)
        return web.Response(body=orjson.dumps(answer), content_type="application/json")

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield Upstream(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", "tiny-1", kind="vllm", logprobs_mode="processed_logprobs")
    await runner.cleanup()


def streams(ledger: LedgerHandle) -> dict[tuple[str, int, int], list[Any]]:
    """All events of each rollout by (group, slot, attempt), in the order of its stream."""
    ledger.barrier()
    found: dict[str, list[Any]] = {}
    since = 0
    while page := ledger.read(since, limit=1000):
        since = page[-1].position
        for event in page:
            if event.stream.startswith("rollout-"):
                found.setdefault(event.stream, []).append(event)
    starts = {stream: events[0].body for stream, events in found.items()}
    assert all(isinstance(start, RolloutStarted) for start in starts.values())
    return {(start.group_id, start.slot, start.attempt): found[stream] for stream, start in starts.items()}


def counted_tokens(ledger: LedgerHandle) -> dict[tuple[str, int], list[tuple[list[int], list[int], list[float]]]]:
    """Prompt ids, sampled ids and logprobs of the calls of the rollout that counts in each slot."""
    found = {}
    for (group_id, slot, _), events in streams(ledger).items():
        if all(event.body.superseded for event in events if isinstance(event.body, RolloutEnded)):
            continue
        with ledger.connection() as conn:
            calls = read_tokens(conn, streams_of(conn, [event.event_id for event in events if event.kind == "ModelCalled"]))
        ordered = [calls[event.event_id] for event in events if event.kind == "ModelCalled"]
        found[group_id, slot] = [(_list(call.prompt), _list(call.sampled), _list(call.logprobs)) for call in ordered]
    return found


def _list(values: Any) -> list[Any]:
    return [] if values is None else list(values.tolist())


def with_policy(made: Sequence[Group], who: Policy) -> list[Group]:
    """The groups with another policy."""
    return [replace(group, policy=who) for group in made]
