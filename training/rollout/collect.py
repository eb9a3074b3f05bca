"""Collects rollouts: dispatches groups, runs their slots concurrently, ends each attempt exactly once. Writes the ledger."""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import aiohttp

from ledger.appender import Appender
from ledger.attempts import Attempt, attempts
from ledger.bundle import Bundle
from ledger.canonical import digest
from ledger.errors import LedgerUnavailable, SettingsError, TallyError, WorldFailed
from ledger.events import GroupDispatched, RolloutStarted
from ledger.events.rollout import RolloutKind
from ledger.exclusive import exclusive
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.store import New
from training.bundles import Harness
from training.hooks import rewriting
from training.rollout.gateway import Gateway, Upstream
from training.rollout.harness import CallFailed, End, Episode, drive
from training.rollout.model_client import call_seed
from training.rollout.packing import PackingEnded
from training.rollout.planting import Planting, Plants, check_faults, plant
from training.rollout.policies import Policy
from training.rollout.recording import RolloutRecord, participants, superseded_end
from training.rollout.scripts import Scripts
from training.rollout.tool_formats import written
from training.rollout.ways import Ways
from training.worlds import AssistantTurn, World
from training.worlds.asynchronous import as_async
from training.worlds.source import Script

DISPATCH_BATCH = 100
WORLD_THREADS = 32


@dataclass(frozen=True)
class Group:
    """G rollouts of one policy at one bundle, with faults planted in them or without."""

    bundle: Bundle
    policy: Policy
    size: int
    rollout_kind: RolloutKind = "ordinary"
    plants: Plants | None = None

    def __post_init__(self) -> None:
        check_faults(self.bundle.draft, self.plants, scripted=self.policy.script is not None)


@dataclass(frozen=True)
class Run:
    """What a collection belongs to.

    Attributes:
        run_id, experiment_id: ids in the ledger.
        round: 0-based round of the run.
        root_seed: the root of all seeds.
    """

    run_id: str
    experiment_id: str
    round: int
    root_seed: int

    def group_id(self, group: Group) -> str:
        """The id of a group: the same run, round, bundle, policy, size and planted faults give the same group."""
        return self._id(group, *(() if group.plants is None else (group.plants.plan.plan_id, group.plants.seed)))

    def twin_id(self, group: Group) -> str:
        """The id that the group has without planted faults. All seeds of a rollout but those of its faults derive from it."""
        return self._id(group)

    def _id(self, group: Group, *planted: Any) -> str:
        return derived_id(
            "group", self.run_id, self.round, group.bundle.bundle_id, group.policy.name, group.policy.model_version,
            digest(dict(group.policy.sampling)), group.policy.strict_tools, group.size, group.rollout_kind, *planted,
        )  # fmt: skip


@dataclass(frozen=True)
class Site:
    """Where rollouts run: the ledger, the gateway, the worlds by name, the harness, and the upstreams by model version.

    Attributes:
        session: the way to the gateway; None for HTTP.
        pool: where worlds work; None for threads.
    """

    ledger: LedgerHandle
    appender: Appender
    gateway: Gateway
    scripted: Scripts
    worlds: Mapping[str, World[Any]]
    harness: Harness
    upstreams: Mapping[str, Upstream]
    session: aiohttp.ClientSession | None = None
    pool: Executor | None = None


@dataclass(frozen=True)
class Collected:
    """What a collection did, in slots: expected, filled before, run now; and the unfinished attempts that it superseded.

    `unpacked` is the number of rollouts whose tokens stay staged because they do not fit what their events committed to.
    """

    expected: int
    already: int
    ran: int
    superseded: int
    unpacked: int = 0


@dataclass(frozen=True)
class _Work:
    site: Site
    run: Run
    session: aiohttp.ClientSession
    pool: Executor
    packing: PackingEnded


@dataclass(frozen=True)
class Slot:
    """A place of a group that an attempt shall fill."""

    group: Group
    group_id: str
    slot: int
    attempt: int


Fill = Callable[[Sequence[Slot]], Awaitable[list[str]]]
"""Makes an attempt for each slot; gives the ids of rollouts whose tokens stay staged, as `Collected.unpacked` counts them."""


async def collect(
    site: Site,
    run: Run,
    groups: Sequence[Group],
    *,
    concurrency: int = 8,
    progress: Callable[[int], None] = lambda _: None,
    elsewhere: Fill | None = None,
) -> Collected:
    """What was done so that every slot of every group has one counted attempt.

    Args:
        groups: what to collect; a slot that is filled already is left alone.
        concurrency: rollouts under way at once.
        progress: called with the number of slots done since the last call.
        elsewhere: has the slots filled by other processes, by means of `fill_slots`; None fills them here.
    Raises:
        TallyError: another process collects this run, or the ledger cannot be written.
    """
    with exclusive(site.ledger, f"run {run.run_id}"):
        # Processes that fill slots for a dead collector end soon after it: nobody may go on with what is superseded next.
        with exclusive(site.ledger, _slots_of(run)):
            pass
        await _dispatch(site, run, groups)
        by_id = {run.group_id(group): group for group in groups}
        known = await asyncio.to_thread(attempts, site.ledger, list(by_id))
        unfinished = [attempt.rollout_id for attempt in known if not attempt.ended]
        unpacked = await _supersede(site, run, unfinished)
        slots = list(_open_slots(by_id, known))
        expected = sum(group.size for group in by_id.values())
        progress(expected - len(slots))
        if elsewhere is not None:
            unpacked += await elsewhere(slots)
        else:
            unpacked += await _fill_all(site, run, slots, concurrency, progress)
        return Collected(expected, expected - len(slots), len(slots), len(unfinished), len(unpacked))


async def fill_slots(
    site: Site, run: Run, slots: Sequence[Slot], *, concurrency: int = 8, progress: Callable[[int], None] = lambda _: None
) -> list[str]:
    """Make an attempt for each slot, as another process's `collect` asks: it has dispatched their groups, and waits.

    Raises:
        TallyError: another process begins to collect this run, or the ledger cannot be written.
    """
    with exclusive(site.ledger, _slots_of(run), shared=True):
        return await _fill_all(site, run, slots, concurrency, progress)


def _slots_of(run: Run) -> str:
    return f"slots of run {run.run_id}"


async def _fill_all(site: Site, run: Run, slots: Sequence[Slot], concurrency: int, progress: Callable[[int], None]) -> list[str]:
    gate = asyncio.Semaphore(concurrency)
    pool = site.pool or ThreadPoolExecutor(min(concurrency, WORLD_THREADS), "tally-world")

    async def fill(work: _Work, slot: Slot) -> None:
        async with gate:
            await _attempt(work, slot)
        progress(1)

    try:
        async with PackingEnded(site.ledger) as packing, _session(site) as session, asyncio.TaskGroup() as tasks:
            for slot in slots:
                tasks.create_task(fill(_Work(site, run, session, pool, packing), slot))
        return packing.unpacked
    except BaseExceptionGroup as group:
        # The slots fail alike when the ledger cannot be written: one error says it.
        misuse = group.subgroup(TallyError)
        if misuse is None:
            raise
        raise misuse.exceptions[0] from group
    finally:
        await asyncio.to_thread(pool.shutdown)


def _session(site: Site) -> AbstractAsyncContextManager[aiohttp.ClientSession]:
    if site.session is not None:
        return nullcontext(site.session)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None))


def _seed_parts(run: Run, slot: Slot, upstream: Upstream) -> tuple[str | int, ...]:
    """What the seeds of a slot's calls are functions of. With keyed noise an attempt that is made again shall give the same tokens;
    elsewhere another attempt is another sample."""
    parts = (run.root_seed, run.run_id, run.round, run.twin_id(slot.group), slot.slot)
    return parts if upstream.kind == "torch" else (*parts, slot.attempt)


async def _dispatch(site: Site, run: Run, groups: Sequence[Group]) -> None:
    events = [
        site.ledger.new(
            GroupDispatched(
                group_id=run.group_id(group), bundle_id=group.bundle.bundle_id, size=group.size, experiment_id=run.experiment_id,
                run_id=run.run_id, round=run.round, policy=group.policy.name, rollout_kind=group.rollout_kind,
            ),
            correlation_id=run.run_id,
        )
        for group in groups
    ]  # fmt: skip
    for start in range(0, len(events), DISPATCH_BATCH):
        await site.appender.append(events[start : start + DISPATCH_BATCH])


async def _supersede(site: Site, run: Run, unfinished: Sequence[str]) -> list[str]:
    """Ids of those of these rollouts whose tokens stay staged; all of them have ended now."""
    async with PackingEnded(site.ledger) as packing:
        for rollout_id in unfinished:
            events = await asyncio.to_thread(site.ledger.read_stream, f"rollout-{rollout_id}")
            body = superseded_end(rollout_id, events, "its collector went away")
            await site.appender.append([site.ledger.new(body, correlation_id=run.run_id)])
            packing.ended(rollout_id)
    return packing.unpacked


def _open_slots(groups: Mapping[str, Group], known: Sequence[Attempt]) -> Iterator[Slot]:
    filled = {(attempt.group_id, attempt.slot) for attempt in known if attempt.counts}
    last: dict[tuple[str, int], int] = {}
    for attempt in known:
        key = (attempt.group_id, attempt.slot)
        last[key] = max(last.get(key, 0), attempt.attempt)
    for group_id, group in groups.items():
        for slot in range(group.size):
            if (group_id, slot) not in filled:
                yield Slot(group, group_id, slot, last.get((group_id, slot), 0) + 1)


async def _attempt(work: _Work, slot: Slot) -> None:
    """Run one attempt from its start to its one end. Whatever happens in between becomes how it ended, never a number."""
    site, run, group, policy = work.site, work.run, slot.group, slot.group.policy
    rollout_id = derived_id("rollout", run.run_id, slot.group_id, slot.slot, slot.attempt)
    upstream = site.upstreams[policy.model_version]
    await site.appender.append([_started(site, run, slot, rollout_id, upstream)])
    seed = call_seed(run.root_seed, group.bundle.bundle_id)
    planting = plant(site.worlds[group.bundle.draft.world], group.bundle.draft, group.plants, rollout_id, seed=seed)
    episode = Episode(as_async(planting.world, work.pool), group.bundle.draft, None)
    record = RolloutRecord(site.ledger, site.appender.append, rollout_id, correlation_id=run.run_id, labels=planting.labels)
    ways = Ways(
        site.gateway, work.session, record, policy, max_tokens=site.harness.table.max_tokens,
        seed_parts=_seed_parts(run, slot, upstream),
    )  # fmt: skip
    began = time.monotonic()
    end = End("cancelled", "operator", "the collector was interrupted")
    try:
        if policy.script is not None:
            await _script(site, episode, policy.script, planting)
        for who in participants(policy, upstream.kind, site.harness):
            site.gateway.register(rollout_id, upstream, participant=who.name, role=who.role, correlation_id=run.run_id)
        episode.state = await episode.world.reset(group.bundle.draft, seed=seed)
        await record.begin(episode)
        asking = planting.through(ways.asker("agent"))
        end = await drive(episode, site.harness, asking, record.act, hear=planting.hear, beside=ways)
    except CallFailed as failed:
        end = End(failed.ended_by, failed.boundary, failed.reason, failed.detail)
    except WorldFailed as failed:
        end = End("world_error", "world", "the world broke", str(failed))
    except (LedgerUnavailable, SettingsError):
        raise
    except Exception:
        end = End("harness_error", "harness", "the harness broke", traceback.format_exc())
    finally:
        calls = site.gateway.close_rollout(rollout_id)
        site.scripted.forget(rollout_id)
        try:
            await asyncio.shield(record.end(episode, end, calls, wall_s=time.monotonic() - began))
        finally:
            if upstream.returns_tokens:
                work.packing.ended(rollout_id)


async def _script(site: Site, episode: Episode, script: Script, planting: Planting) -> None:
    """Have the scripted policy say its part in the harness's format; compact lines need the tools of all user turns."""
    turns = range(len(episode.draft.request["turns"]))
    tools = {tool["function"]["name"]: tool for turn in turns for tool in await episode.world.tools(episode.draft, turn=turn)}
    said = [written(turn, list(tools.values()), site.harness.table) for turn in (*script(episode.draft), AssistantTurn("Done."))]
    # Its answers so far can no longer be counted in a conversation that was rewritten.
    site.scripted.script(
        planting.rollout_id, said[:-1], final_text=said[-1].content, by_request=bool(rewriting(site.harness.hooks)),
        faults=planting.engine_fault,
    )  # fmt: skip


def _started(site: Site, run: Run, slot: Slot, rollout_id: str, upstream: Upstream) -> New:
    body = RolloutStarted(
        rollout_id=rollout_id, group_id=slot.group_id, bundle_id=slot.group.bundle.bundle_id, slot=slot.slot, attempt=slot.attempt,
        rollout_kind=slot.group.rollout_kind, participants=participants(slot.group.policy, upstream.kind, site.harness),
        seed=call_seed(run.root_seed, run.run_id, run.twin_id(slot.group), slot.slot),
    )  # fmt: skip
    return site.ledger.new(body, correlation_id=run.run_id)
