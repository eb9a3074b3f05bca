"""The product's own harness as load: the same rollouts with the same seeds, asked of any base URL, or collected with all that is recorded."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from ledger.appender import Appender
from ledger.attempts import attempts
from ledger.events import ModelCalled, RolloutEnded
from ledger.ledger import LedgerHandle
from training.bundles import Harness
from training.rollout.collect import Group, Run, Site, collect
from training.rollout.episode import Act, Answer, Ask, Episode, Message, Tools
from training.rollout.gateway import KEEPALIVE_S, Gateway, Upstream
from training.rollout.harness import drive
from training.rollout.model_client import ModelClient, call_seed
from training.rollout.scripts import Scripts
from training.worlds import World
from training.worlds.asynchronous import as_async

ENDINGS = {"finished", "turn_limit", "token_limit"}
"""How a rollout ends in which no call failed."""
ASKING_IDS = {"logprobs": True, "return_token_ids": True}
"""What a harness asks for that keeps token ids and log-probabilities itself; the gateway asks for the same."""


@dataclass(frozen=True)
class Load:
    """What is played: groups of rollouts by one policy in one world, `callers` rollouts at once."""

    world: World[Any]
    harness: Harness
    groups: Sequence[Group]
    callers: int

    @property
    def rollouts(self) -> int:
        """Number of rollouts."""
        return sum(group.size for group in self.groups)


@dataclass
class Played:
    """What came of it: wall seconds, seconds of each call as the harness saw it (in a collection, as the gateway did), and sampled tokens."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    sampled: int = 0

    @property
    def calls(self) -> int:
        """Number of calls."""
        return len(self.latencies)


async def driven(load: Load, run: Run, urls: Iterable[str], *, more: Mapping[str, Any] | None = None) -> Played:
    """What the harness measured that asks one URL (ending in `/v1`) a rollout and records nothing.

    Args:
        more: further fields of the requests.
    Raises:
        ExceptionGroup: a call failed.
    """
    played, gate = Played(), asyncio.Semaphore(load.callers)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S)
    slots = [(group, slot) for group in load.groups for slot in range(group.size)]
    with ThreadPoolExecutor(load.callers) as pool:
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:

            async def play(group: Group, slot: int, url: str) -> None:
                policy, draft = group.policy, group.bundle.draft
                # As in a collection, so that every way plays the same.
                parts = (run.root_seed, run.run_id, run.round, run.twin_id(group), slot, 1)
                sampling = {"max_tokens": load.harness.table.max_tokens, **policy.sampling, **(more or {})}
                client = ModelClient(
                    session, url, policy.model, sampling=sampling, stream=policy.stream, strict_tools=policy.strict_tools, seed_parts=parts
                )
                async with gate:
                    episode = Episode(as_async(load.world, pool), draft, None)
                    episode.state = await episode.world.reset(draft, seed=call_seed(run.root_seed, group.bundle.bundle_id))
                    end = await drive(episode, load.harness, _timed(client.ask, played), _unrecorded)
                assert end.ended_by in ENDINGS, end

            began = time.perf_counter()
            async with asyncio.TaskGroup() as tasks:
                for (group, slot), url in zip(slots, urls, strict=True):
                    tasks.create_task(play(group, slot, url))
            played.seconds = time.perf_counter() - began
    return played


async def collected(load: Load, run: Run, ledger: LedgerHandle, upstream: Upstream) -> Played:
    """What a collection measured whose gateway is in this process: as `driven`, and recorded from dispatch to end."""
    appender = Appender(ledger)
    try:
        async with Gateway(ledger, appender=appender) as gateway:
            upstreams = {upstream.model_version: upstream}
            site = Site(ledger, appender, gateway, Scripts(), {load.world.name: load.world}, load.harness, upstreams)
            began = time.perf_counter()
            done = await collect(site, run, load.groups, concurrency=load.callers)
            seconds = time.perf_counter() - began
    finally:
        await appender.close()
    assert (done.ran, done.unpacked) == (load.rollouts, 0), done
    found = await asyncio.to_thread(attempts, ledger, [run.group_id(group) for group in load.groups])
    bodies = [event.body for event in ledger.read_streams([f"rollout-{attempt.rollout_id}" for attempt in found])]
    calls = [body for body in bodies if isinstance(body, ModelCalled)]
    assert {body.ended_by for body in bodies if isinstance(body, RolloutEnded)} <= ENDINGS
    assert {call.status for call in calls} == {"completed"}
    return Played(seconds, [call.latency_s for call in calls], sum(call.usage.get("completion_tokens") or 0 for call in calls))


def _timed(ask: Ask, played: Played) -> Ask:
    async def timed(messages: Sequence[Message], tools: Tools, index: int) -> Answer:
        began = time.perf_counter()
        answer = await ask(messages, tools, index)
        played.latencies.append(time.perf_counter() - began)
        played.sampled += answer.sampled_tokens or 0
        return answer

    return timed


async def _unrecorded(act: Act) -> None:
    """Nothing is recorded."""
