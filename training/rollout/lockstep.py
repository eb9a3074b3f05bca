"""Collects rollouts in lock-step: of a policy on an engine in this process, or of scripted policies. Writes the ledger."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, fields, replace
from types import TracebackType
from typing import Any, cast

import aiohttp

from ledger.errors import SettingsError
from training.rollout.collect import Collected, Group, Run, Site, collect
from training.rollout.gateway import Gateway, Upstream
from training.rollout.lockstep_answers import Answers, Played, Sampled, Spent
from training.rollout.lockstep_gateway import LockstepGateway
from training.rollout.lockstep_session import LockstepSession
from training.rollout.sampling_calls import BatchedEngine, settings_of
from training.rollout.scripts import Scripts


@dataclass(frozen=True)
class CollectedInLockstep(Collected):
    """What a collection did, with what its batches were and where their time went."""

    spent: Spent = field(default_factory=Spent)


async def collect_lockstep(
    site: Site,
    run: Run,
    groups: Sequence[Group],
    *,
    engine: BatchedEngine,
    concurrency: int = 256,
    threaded: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> CollectedInLockstep:
    """What was done so that every slot of every group has one counted attempt; as `collect`, sampled in batches.

    With the worlds' own randomness keyed as it is, the tokens of a slot are a function of the weights, the run, the round, the group and
    the slot: not of the attempt, nor of the other rollouts. So a collection that was killed and goes on gives what one that was not
    killed gives. Rollouts with planted faults are the exception, since those are drawn for each attempt.

    Args:
        site: its gateway, appender and upstreams are not used.
        groups: of policies whose model version the engine serves.
        engine: serves, and is used by nobody else meanwhile.
        concurrency: rollouts under way at once; all of them wait for the slowest of them before each batch.
        threaded: worlds work in threads, for those that wait for other processes; without, they work in the event loop.
        progress: called with the number of slots done since the last call.
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
    answers = Sampled(engine, clock=site.ledger.clock)
    upstream = Upstream(answers.address, version, kind="torch", logprobs_mode=engine.logprobs_mode)
    whole = [replace(group, policy=replace(group.policy, stream=False)) for group in groups]
    inside = replace(site, upstreams={version: upstream}, pool=None if threaded else Inline())
    return await _together(inside, run, whole, answers, concurrency=concurrency, progress=progress)


async def collect_scripted(
    site: Site,
    run: Run,
    groups: Sequence[Group],
    *,
    concurrency: int = 64,
    threaded: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> CollectedInLockstep:
    """What was done so that every slot of every group of scripted policies has one counted attempt; as `collect`, with its events.

    Args:
        site: its gateway, appender, scripts and upstreams are not used.
        concurrency, threaded, progress: as in `collect_lockstep`.
    Raises:
        SettingsError: a policy that is not scripted.
        TallyError: as `collect`.
    """
    for policy in (group.policy for group in groups):
        if policy.script is None:
            raise SettingsError(f"policy {policy.name!r} is sampled; allowed here: scripted ones")
    scripts = Scripts()
    answers = Played(scripts)
    versions = {group.policy.model_version for group in groups}
    upstreams = {version: Upstream(answers.address, version, kind="scripted") for version in versions}
    inside = replace(site, scripted=scripts, upstreams=upstreams, pool=None if threaded else Inline())
    return await _together(inside, run, groups, answers, concurrency=concurrency, progress=progress)


async def _together(
    site: Site, run: Run, groups: Sequence[Group], answers: Answers, *, concurrency: int, progress: Callable[[int], None]
) -> CollectedInLockstep:
    gateway = LockstepGateway(site.ledger, answers)
    # Both stand in for what `collect` uses of the real ones: registration, calls and URLs, and posting a request.
    there = cast(Gateway, gateway), cast(aiohttp.ClientSession, LockstepSession(gateway))
    try:
        inside = replace(site, appender=gateway.appender, gateway=there[0], session=there[1])
        done = await collect(inside, run, groups, concurrency=concurrency, progress=progress)
    finally:
        await gateway.close()
    return CollectedInLockstep(**{item.name: getattr(done, item.name) for item in fields(done)}, spent=gateway.spent)


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
