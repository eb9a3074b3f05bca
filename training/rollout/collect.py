"""Collects rollouts: dispatches groups, runs their slots concurrently, ends each attempt exactly once. Writes the ledger."""

import asyncio
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

from ledger.appender import Appender
from ledger.attempts import Attempt, attempts
from ledger.bundle import Bundle
from ledger.canonical import digest
from ledger.errors import IdempotencyConflict, LedgerUnavailable, SettingsError, TallyError, WorldFailed
from ledger.events import GroupDispatched, Participant, RolloutEnded, RolloutStarted, StateSnapshotted, ToolCalled
from ledger.events.rollout import RolloutKind
from ledger.exclusive import exclusive
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.lineage import bound_calls, calls_digest
from ledger.store import New
from ledger.token_packing import pack_rollout
from training.bundles import Harness
from training.rollout.gateway import Gateway, RolloutCalls, Upstream
from training.rollout.harness import Act, Answer, Ask, CallFailed, End, Episode, Record, drive
from training.rollout.model_client import ModelClient, call_seed
from training.rollout.planting import Planting, Plants, check_faults, plant
from training.rollout.policies import Policy
from training.rollout.scripted import ScriptedServer
from training.worlds import World
from training.worlds.asynchronous import as_async

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
        check_faults(self.bundle.draft, self.plants)


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
    scripted: ScriptedServer
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
    unpacked: list[str]


@dataclass(frozen=True)
class _Slot:
    group: Group
    group_id: str
    slot: int
    attempt: int


async def collect(
    site: Site, run: Run, groups: Sequence[Group], *, concurrency: int = 8, progress: Callable[[int], None] = lambda _: None
) -> Collected:
    """What was done so that every slot of every group has one counted attempt.

    Args:
        groups: what to collect; a slot that is filled already is left alone.
        concurrency: rollouts under way at once.
        progress: called with the number of slots done since the last call.
    Raises:
        TallyError: another process collects this run, or the ledger cannot be written.
    """
    with exclusive(site.ledger, f"run {run.run_id}"):
        await _dispatch(site, run, groups)
        by_id = {run.group_id(group): group for group in groups}
        known = await asyncio.to_thread(attempts, site.ledger, list(by_id))
        unpacked: list[str] = []
        superseded = await _supersede(site, run, [attempt for attempt in known if not attempt.ended], unpacked)
        slots = list(_open_slots(by_id, known))
        expected = sum(group.size for group in by_id.values())
        progress(expected - len(slots))
        await _run_all(site, run, slots, concurrency, progress, unpacked=unpacked)
        return Collected(expected, expected - len(slots), len(slots), superseded, len(unpacked))


async def _run_all(
    site: Site, run: Run, slots: Sequence[_Slot], concurrency: int, progress: Callable[[int], None], *, unpacked: list[str]
) -> None:
    gate = asyncio.Semaphore(concurrency)
    pool = site.pool or ThreadPoolExecutor(min(concurrency, WORLD_THREADS), "tally-world")

    async def fill(work: _Work, slot: _Slot) -> None:
        async with gate:
            await _attempt(work, slot)
        progress(1)

    try:
        async with _session(site) as session, asyncio.TaskGroup() as tasks:
            for slot in slots:
                tasks.create_task(fill(_Work(site, run, session, pool, unpacked), slot))
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


def _seed_parts(run: Run, slot: _Slot, upstream: Upstream) -> tuple[str | int, ...]:
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


async def _supersede(site: Site, run: Run, unfinished: Sequence[Attempt], unpacked: list[str]) -> int:
    for attempt in unfinished:
        events = await asyncio.to_thread(site.ledger.read_stream, f"rollout-{attempt.rollout_id}")
        call_ids = bound_calls(events)
        body = RolloutEnded(
            rollout_id=attempt.rollout_id, ended_by="cancelled", boundary="operator", reason="superseded: its collector went away",
            model_calls=len(call_ids), tool_calls=sum(event.kind == "ToolCalled" for event in events), calls_digest=calls_digest(call_ids),
            wall_s=None, sampling_s=None, tool_s=None, superseded=True,
        )  # fmt: skip
        await site.appender.append([site.ledger.new(body, correlation_id=run.run_id)])
        await _pack(site, attempt.rollout_id, unpacked)
    return len(unfinished)


def _open_slots(groups: Mapping[str, Group], known: Sequence[Attempt]) -> Iterator[_Slot]:
    filled = {(attempt.group_id, attempt.slot) for attempt in known if attempt.counts}
    last: dict[tuple[str, int], int] = {}
    for attempt in known:
        key = (attempt.group_id, attempt.slot)
        last[key] = max(last.get(key, 0), attempt.attempt)
    for group_id, group in groups.items():
        for slot in range(group.size):
            if (group_id, slot) not in filled:
                yield _Slot(group, group_id, slot, last.get((group_id, slot), 0) + 1)


async def _attempt(work: _Work, slot: _Slot) -> None:
    """Run one attempt from its start to its one end. Whatever happens in between becomes how it ended, never a number."""
    site, run, group, policy = work.site, work.run, slot.group, slot.group.policy
    rollout_id = derived_id("rollout", run.run_id, slot.group_id, slot.slot, slot.attempt)
    upstream = site.upstreams[policy.model_version]
    await site.appender.append([_started(site, run, slot, rollout_id, upstream)])
    seed = call_seed(run.root_seed, group.bundle.bundle_id)
    planting = plant(site.worlds[group.bundle.draft.world], group.bundle.draft, group.plants, rollout_id, seed=seed)
    episode = Episode(as_async(planting.world, work.pool), group.bundle.draft, None)
    began = time.monotonic()
    end = End("cancelled", "operator", "the collector was interrupted")
    try:
        if policy.script is not None:
            site.scripted.script(rollout_id, policy.script(group.bundle.draft))
        site.gateway.register(rollout_id, upstream, participant=policy.name, correlation_id=run.run_id)
        episode.state = await episode.world.reset(group.bundle.draft, seed=seed)
        await site.appender.append([*_labels(site, run, planting, 0), await _snapshot(site, run, rollout_id, episode, 0)])
        ask, record = _asker(work, slot, planting), _recorder(site, run, planting)
        end = await drive(episode, site.harness, ask, record, hear=planting.hear)
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
        await asyncio.shield(_end(work, (planting, calls), episode, end, time.monotonic() - began))


def _asker(work: _Work, slot: _Slot, planting: Planting) -> Ask:
    site, run, policy, rollout_id = work.site, work.run, slot.group.policy, planting.rollout_id
    seed_parts = _seed_parts(run, slot, site.upstreams[policy.model_version])
    sampling = {"max_tokens": int(site.harness.limits["max_tokens"]), **policy.sampling}
    url = site.gateway.base_url(rollout_id)
    client = ModelClient(
        work.session, url, policy.model, sampling=sampling, stream=policy.stream, strict_tools=policy.strict_tools, seed_parts=seed_parts
    )

    async def ask(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], index: int) -> Answer:
        if labels := _labels(site, run, planting, index):
            await site.appender.append(labels)
        before = site.gateway.calls(rollout_id).sampling_s
        answer = await client.ask(messages, tools, index)
        return replace(answer, sampling_s=site.gateway.calls(rollout_id).sampling_s - before)

    return ask


def _started(site: Site, run: Run, slot: _Slot, rollout_id: str, upstream: Upstream) -> New:
    policy = slot.group.policy
    agent = Participant(
        name=policy.name, role="agent", model_version=policy.model_version, endpoint=upstream.kind,
        sampling={key: value for key, value in policy.sampling.items() if isinstance(value, int | float | str | bool | None)},
        trainable=policy.trainable,
    )  # fmt: skip
    body = RolloutStarted(
        rollout_id=rollout_id, group_id=slot.group_id, bundle_id=slot.group.bundle.bundle_id, slot=slot.slot, attempt=slot.attempt,
        rollout_kind=slot.group.rollout_kind, participants=[agent],
        seed=call_seed(run.root_seed, run.run_id, run.twin_id(slot.group), slot.slot),
    )  # fmt: skip
    return site.ledger.new(body, correlation_id=run.run_id)


def _labels(site: Site, run: Run, planting: Planting, index: int) -> list[New]:
    """What must be durable with, or before, what the planted faults did."""
    return [site.ledger.new(label, correlation_id=run.run_id) for label in planting.labels(index)]


def _recorder(site: Site, run: Run, planting: Planting) -> Record:
    async def record(act: Act) -> None:
        pending = site.ledger.pending
        name, sampled = pending(act.sampled.name), pending(act.sampled.arguments)
        parsed = None if act.parsed is None else site.ledger.pending_json(dict(act.parsed))
        result = pending(act.observation.content)
        body = ToolCalled(
            rollout_id=planting.rollout_id, index=act.index, turn=act.turn, model_call_id=act.model_call_id,
            tool_call_id=digest(act.sampled.call_id, allow_nul=True)[:16], name=name.ref, arguments_sampled=sampled.ref,
            arguments_parsed=None if parsed is None else parsed.ref, result=result.ref, error_class=act.observation.error_class,
            state_before=act.state_before, state_after=act.state_after, latency_s=act.latency_s,
        )  # fmt: skip
        blobs = [name, sampled, result] if parsed is None else [name, sampled, result, parsed]
        labels = _labels(site, run, planting, act.index)
        await site.appender.append([*labels, site.ledger.new(body, *blobs, correlation_id=run.run_id)])

    return record


async def _snapshot(site: Site, run: Run, rollout_id: str, episode: Episode, step: int) -> New:
    world = episode.world
    view = site.ledger.pending_json(world.view(episode.state))
    data = site.ledger.pending((await world.snapshot(episode.state)).data, media="application/octet-stream")
    body = StateSnapshotted(rollout_id=rollout_id, step=step, state=world.digest(episode.state), view=view.ref, snapshot=data.ref)
    return site.ledger.new(body, view, data, correlation_id=run.run_id)


async def _end(work: _Work, made: tuple[Planting, RolloutCalls], episode: Episode, end: End, wall_s: float) -> None:
    site, run, (planting, calls) = work.site, work.run, made
    rollout_id = planting.rollout_id
    detail = None if end.detail is None else site.ledger.pending(end.detail)
    body = RolloutEnded(
        rollout_id=rollout_id, ended_by=end.ended_by, boundary=end.boundary, reason=end.reason[:500],
        detail=None if detail is None else detail.ref, model_calls=len(calls.call_ids), tool_calls=episode.tool_calls,
        calls_digest=calls_digest(calls.call_ids), wall_s=wall_s + episode.unslept_s, sampling_s=calls.sampling_s, tool_s=episode.tool_s,
        superseded=end.ended_by == "cancelled",
    )  # fmt: skip
    events = _labels(site, run, planting, episode.tool_calls)
    if episode.state is not None:
        events.append(await _snapshot(site, run, rollout_id, episode, episode.tool_calls + 1))
    events.append(site.ledger.new(body, *([] if detail is None else [detail]), correlation_id=run.run_id))
    try:
        await site.appender.append(events)
    except IdempotencyConflict:
        # Another collector superseded this attempt while it ran; its end stands and this late one is not counted.
        pass
    await _pack(site, rollout_id, work.unpacked)


async def _pack(site: Site, rollout_id: str, unpacked: list[str]) -> None:
    """Pack an ended rollout's tokens in a thread; what does not fit its events stays staged, where verification finds it."""
    packed = await asyncio.to_thread(pack_rollout, site.ledger, rollout_id)
    if packed.faults:
        unpacked.append(rollout_id)
