"""Any world for asynchronous callers and any asynchronous world for the others. Runs calls in threads."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar, cast

from ledger.bundle import BundleDraft
from ledger.errors import WorldFailed
from training.worlds import AsyncWorld, Diff, Observation, Snapshot, ToolCall, World

S = TypeVar("S")
T = TypeVar("T")


def as_async(world: World[S] | AsyncWorld[S], pool: Executor) -> AsyncWorld[S]:
    """The world for asynchronous callers: itself if it is one of theirs, else a view that works in threads of `pool`."""
    if inspect.iscoroutinefunction(world.call):
        return cast(AsyncWorld[S], world)
    return AsyncView(cast(World[S], world), pool)


class _Named(Generic[S]):
    """What both views take over from the world as it is."""

    def __init__(self, world: World[S] | AsyncWorld[S]) -> None:
        self.name, self.version, self.source, self.fidelity = world.name, world.version, world.source, world.fidelity
        self._values = world

    def view(self, state: S) -> Any:
        """The whole state as a JSON value."""
        return self._values.view(state)

    def material(self, view: Any) -> Any:
        """The part of a view on which end states are compared."""
        return self._values.material(view)

    def diff(self, before: S, after: S) -> Diff:
        """Where two states differ."""
        return self._values.diff(before, after)

    def digest(self, state: S) -> str:
        """Hex SHA-256 of the canonical form of the state's view."""
        return self._values.digest(state)


@dataclass
class _Lane:
    """The calls on one state. It holds the state, so that no other one gets its identity meanwhile."""

    state: Any
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    inside: int = 0


class AsyncView(_Named[S]):
    """A synchronous world for the callers of one event loop; the pool is theirs to end."""

    def __init__(self, world: World[S], pool: Executor) -> None:
        super().__init__(world)
        self._world, self._pool = world, pool
        self._lanes: dict[int, _Lane] = {}

    async def tools(self, draft: BundleDraft, *, turn: int) -> list[dict[str, Any]]:
        """OpenAI tool schemas that the policy may call in user turn `turn`."""
        return await self._run(partial(self._world.tools, draft, turn=turn))

    async def reset(self, draft: BundleDraft, *, seed: int) -> S:
        """The initial state of the task."""
        return await self._run(partial(self._world.reset, draft, seed=seed))

    async def call(self, state: S, call: ToolCall) -> tuple[S, Observation]:
        """The state after the call, and the observation."""
        return await self._in_turn(state, partial(self._world.call, state, call))

    async def snapshot(self, state: S) -> Snapshot:
        """The state at rest."""
        return await self._in_turn(state, partial(self._world.snapshot, state))

    async def restore(self, snapshot: Snapshot) -> S:
        """The state that was put to rest."""
        return await self._run(partial(self._world.restore, snapshot))

    async def fork(self, snapshot: Snapshot, n: int) -> list[S]:
        """`n` independent states, each equal to the snapshot."""
        return await self._run(partial(self._world.fork, snapshot, n))

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def _in_turn(self, state: S, work: Callable[[], T]) -> T:
        lane = self._lanes.setdefault(id(state), _Lane(state))
        lane.inside += 1
        try:
            await lane.lock.acquire()
        except asyncio.CancelledError:
            self._leave(lane)
            raise
        try:
            running = asyncio.get_running_loop().run_in_executor(self._pool, work)
        except RuntimeError as error:
            lane.lock.release()
            self._leave(lane)
            raise WorldFailed(f"world {self.name!r} has no threads to work in: {error}") from error
        # A thread cannot be stopped: whoever is cancelled goes, and the lane stays taken until the call has ended.
        running.add_done_callback(partial(self._done, lane))
        return await asyncio.shield(running)

    def _done(self, lane: _Lane, running: "asyncio.Future[Any]") -> None:
        lane.lock.release()
        self._leave(lane)

    def _leave(self, lane: _Lane) -> None:
        lane.inside -= 1
        if lane.inside == 0:
            del self._lanes[id(lane.state)]


class SyncView(_Named[S]):
    """An asynchronous world for callers in any thread; it lives in an event loop of its own and must be closed.

    Args:
        world: made in no event loop yet; all its coroutines run in the view's own. Its coroutine `aclose()`, if any, is run by `close`.
        limit_s: seconds one call may take.
    """

    def __init__(self, world: AsyncWorld[S], *, limit_s: float = 600.0) -> None:
        super().__init__(world)
        self._world, self._limit_s = world, limit_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"tally-world-{world.name}", daemon=True)
        self._thread.start()

    def tools(self, draft: BundleDraft, *, turn: int) -> list[dict[str, Any]]:
        """OpenAI tool schemas that the policy may call in user turn `turn`."""
        return self._wait(self._world.tools(draft, turn=turn))

    def reset(self, draft: BundleDraft, *, seed: int) -> S:
        """The initial state of the task."""
        return self._wait(self._world.reset(draft, seed=seed))

    def call(self, state: S, call: ToolCall) -> tuple[S, Observation]:
        """The state after the call, and the observation."""
        return self._wait(self._world.call(state, call))

    def snapshot(self, state: S) -> Snapshot:
        """The state at rest."""
        return self._wait(self._world.snapshot(state))

    def restore(self, snapshot: Snapshot) -> S:
        """The state that was put to rest."""
        return self._wait(self._world.restore(snapshot))

    def fork(self, snapshot: Snapshot, n: int) -> list[S]:
        """`n` independent states, each equal to the snapshot."""
        return self._wait(self._world.fork(snapshot, n))

    def close(self) -> None:
        """Closes the world, gives up what still runs, and ends the thread; later calls fail."""
        if self._loop.is_closed():
            return
        if (aclose := getattr(self._world, "aclose", None)) is not None:
            self._wait(aclose())
        asyncio.run_coroutine_threadsafe(_give_up(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns.

        Raises:
            WorldFailed: it took too long, the view was closed, or the view's own loop would wait for itself.
        """
        if self._loop.is_closed() or threading.current_thread() is self._thread:
            work.close()
            why = "was closed" if self._loop.is_closed() else "was asked from its own event loop, which would wait for itself"
            raise WorldFailed(f"world {self.name!r} {why}")
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result(self._limit_s)
        except TimeoutError as error:
            if running.done():
                raise
            raise WorldFailed(f"world {self.name!r} did not answer within {self._limit_s:g} s") from error
        except CancelledError as error:
            raise WorldFailed(f"world {self.name!r} was closed before it answered") from error
        finally:
            running.cancel()


async def _give_up() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
