"""Collects rollouts in lock-step: of a policy on an engine in this process, or of scripted policies. Writes the ledger."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from types import TracebackType
from typing import Any, cast

import aiohttp

from ledger.errors import SettingsError
from training.rollout.collect import Collected, Group, Run, Site, Slot, collect, fill_slots
from training.rollout.gateway import Gateway, Upstream
from training.rollout.lockstep_answers import Answers, Played, Sampled, Spent
from training.rollout.lockstep_gateway import LockstepGateway
from training.rollout.lockstep_session import LockstepSession
from training.rollout.policies import Policy
from training.rollout.sampling_calls import BatchedEngine, settings_of
from training.rollout.scripts import Scripts


@dataclass(frozen=True)
class CollectedInLockstep(Collected):
    """What a collection did, with what its batches were and where their time went."""

    spent: Spent = field(default_factory=Spent)


@dataclass(frozen=True)
class Filled:
    """What filling slots in lock-step gave: rollouts whose tokens stay staged, and where the time went."""

    unpacked: tuple[str, ...]
    spent: Spent


def joined(parts: Sequence[Filled]) -> Filled:
    """What several processes filled, together."""
    return Filled(tuple(name for part in parts for name in part.unpacked), sum((part.spent for part in parts), Spent()))


Shared = Callable[[Run, Sequence[Slot]], Awaitable[Filled]]
"""Has slots filled by other processes, by means of `fill_sampled` or `fill_scripted`."""


async def collect_lockstep(
    site: Site,
    run: Run,
    groups: Sequence[Group],
    *,
    engine: BatchedEngine,
    concurrency: int = 256,
    threaded: bool = False,
    progress: Callable[[int], None] = lambda _: None,
    shared: Shared | None = None,
) -> CollectedInLockstep:
    """What was done so that every slot of every group has one counted attempt; as `collect`, sampled in batches.

    With the worlds' own randomness keyed as it is, the tokens of a slot are a function of the weights, the run, the round, the group and
    the slot: not of the attempt, nor of the other rollouts. So a collection that was killed and goes on gives what one that was not
    killed gives, and processes that share the work what one alone gives. Rollouts with planted faults are the exception, since those
    are drawn for each attempt.

    Args:
        site: its gateway, appender and upstreams are not used.
        groups: of policies whose model version the engine serves.
        engine: serves, and is used by nobody else meanwhile.
        concurrency: rollouts under way at once; all of them wait for the slowest of them before each batch.
        threaded: worlds work in threads, for those that wait for other processes; without, they work in the event loop.
        progress: called with the number of slots done since the last call.
        shared: fills the slots with engines that serve the same; None fills them here.
    Raises:
        SettingsError: a policy that the engine does not serve, or a sampling field that it does not honour.
        TallyError: as `collect`.
    """
    version = engine.version
    for policy in {group.policy.name: group.policy for group in groups}.values():
        if version is None or policy.model_version != version or policy.script is not None:
            raise SettingsError(f"policy {policy.name!r} is {policy.model_version!r}; the engine serves {version!r}")
        settings_of(policy.sampling)
    if version is None:
        return CollectedInLockstep(0, 0, 0, 0)
    whole = [replace(group, policy=replace(group.policy, stream=False)) for group in groups]
    return await _collect(_sampled(site, engine, threaded), run, whole, concurrency=concurrency, progress=progress, shared=shared)


async def collect_scripted(
    site: Site,
    run: Run,
    groups: Sequence[Group],
    *,
    concurrency: int = 64,
    threaded: bool = False,
    progress: Callable[[int], None] = lambda _: None,
    shared: Shared | None = None,
    answers: Played | None = None,
) -> CollectedInLockstep:
    """What was done so that every slot of every group of scripted policies has one counted attempt; as `collect`, with its events.

    Args:
        site: its gateway, appender, scripts and upstreams are not used.
        concurrency, threaded, progress, shared: as in `collect_lockstep`.
        answers: who plays the scripts; None plays them without tokens.
    Raises:
        SettingsError: a policy that is not scripted.
        TallyError: as `collect`.
    """
    _check_scripted(group.policy for group in groups)
    versions = {group.policy.model_version for group in groups}
    return await _collect(
        _played(site, versions, threaded, answers), run, groups, concurrency=concurrency, progress=progress, shared=shared
    )


async def fill_sampled(
    site: Site, run: Run, slots: Sequence[Slot], *, engine: BatchedEngine, concurrency: int = 256, threaded: bool = False
) -> Filled:
    """Fill slots for the `collect_lockstep` of another process, with an engine of this one."""
    place = _sampled(site, engine, threaded)
    return await _fill(place, run, slots, concurrency=concurrency)


async def fill_scripted(site: Site, run: Run, slots: Sequence[Slot], *, concurrency: int = 64, threaded: bool = False) -> Filled:
    """Fill slots for the `collect_scripted` of another process."""
    place = _played(site, {slot.group.policy.model_version for slot in slots}, threaded)
    return await _fill(place, run, slots, concurrency=concurrency)


@dataclass(frozen=True)
class _Place:
    """A site, and who answers the calls that are made there."""

    site: Site
    answers: Answers


def _sampled(site: Site, engine: BatchedEngine, threaded: bool) -> _Place:
    answers = Sampled(engine, clock=site.ledger.clock)
    assert engine.version is not None
    upstream = Upstream(answers.address, engine.version, kind="torch", logprobs_mode=engine.logprobs_mode)
    return _Place(replace(site, upstreams={engine.version: upstream}, pool=None if threaded else Inline()), answers)


def _played(site: Site, versions: Collection[str], threaded: bool, answers: Played | None = None) -> _Place:
    answers = answers or Played(Scripts())
    upstreams = {version: answers.upstream(version) for version in versions}
    return _Place(replace(site, scripted=answers.scripts, upstreams=upstreams, pool=None if threaded else Inline()), answers)


def _check_scripted(policies: Iterable[Policy]) -> None:
    for policy in policies:
        if policy.script is None:
            raise SettingsError(f"policy {policy.name!r} is sampled; allowed here: scripted ones")


async def _collect(
    place: _Place, run: Run, groups: Sequence[Group], *, concurrency: int, progress: Callable[[int], None], shared: Shared | None
) -> CollectedInLockstep:
    spent = Spent()

    async def elsewhere(slots: Sequence[Slot]) -> list[str]:
        nonlocal spent
        assert shared is not None
        filled = await shared(run, slots)
        spent = filled.spent
        progress(len(slots))
        return list(filled.unpacked)

    async with _standing(place) as (site, gateway):
        apart = None if shared is None else elsewhere
        done = await collect(site, run, groups, concurrency=concurrency, progress=progress, elsewhere=apart)
        spent += gateway.spent
    return CollectedInLockstep(**{item.name: getattr(done, item.name) for item in fields(done)}, spent=spent)


async def _fill(place: _Place, run: Run, slots: Sequence[Slot], *, concurrency: int) -> Filled:
    async with _standing(place) as (site, gateway):
        unpacked = await fill_slots(site, run, slots, concurrency=concurrency)
    return Filled(tuple(unpacked), gateway.spent)


@asynccontextmanager
async def _standing(place: _Place) -> AsyncIterator[tuple[Site, LockstepGateway]]:
    gateway = LockstepGateway(place.site.ledger, place.answers)
    # Both stand in for what `collect` uses of the real ones: registration, calls and URLs, and posting a request.
    there = cast(Gateway, gateway), cast(aiohttp.ClientSession, LockstepSession(gateway))
    try:
        yield replace(place.site, appender=gateway.appender, gateway=there[0], session=there[1]), gateway
    finally:
        await gateway.close()


class Inline(Executor):
    """Runs what it is given at once, in the thread that gives it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """A future that is done."""
        future: Future[Any] = Future()
        with _Failure(future):
            future.set_result(fn(*args, **kwargs))
        return future


class _Failure:
    """Hands what fails inside on to who waits for the future."""

    def __init__(self, future: "Future[Any]") -> None:
        self._future = future

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if isinstance(error, Exception):
            self._future.set_exception(error)
        return isinstance(error, Exception)
