"""Views of worlds for asynchronous and synchronous callers: the same answers, in order, whoever is cancelled."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ledger.bundle import BundleDraft
from ledger.errors import WorldFailed
from training.worlds import AsyncWorld, Observation, ToolCall, World
from training.worlds.asynchronous import AsyncView, SyncView, as_async
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate
from training.worlds.ticket_desk.state import DeskState

DRAFT = generate(1, seed=3)[0]


class GatedDesk(TicketDesk):
    """A desk whose calls begin in order and end when they are let."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[str] = []
        self.gate = threading.Event()

    def call(self, state: DeskState, call: ToolCall) -> tuple[DeskState, Observation]:
        self.begun.append(call.call_id)
        assert self.gate.wait(10)
        return super().call(state, call)


class NativeDesk:
    """A desk that is asynchronous by itself."""

    name, fidelity = "ticket_desk", "exact"

    def __init__(self, delay_s: float = 0.0) -> None:
        self._desk, self._delay_s = TicketDesk(), delay_s
        self.version, self.source = self._desk.version, self._desk.source
        self.threads: set[int] = set()
        self.closed = False

    async def call(self, state: DeskState, call: ToolCall) -> tuple[DeskState, Observation]:
        self.threads.add(threading.get_ident())
        await asyncio.sleep(self._delay_s)
        return self._desk.call(state, call)

    async def aclose(self) -> None:
        self.closed = True

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._desk, name)
        if name in ("view", "material", "diff", "digest"):
            return found

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return found(*args, **kwargs)

        return awaited


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def query(call_id: str) -> ToolCall:
    return ToolCall("query_tickets", {}, call_id)


async def until(condition: Any) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it never came about")


async def test_a_view_answers_as_its_world_does(pool: ThreadPoolExecutor) -> None:
    desk: World[DeskState] = TicketDesk()
    view: AsyncWorld[DeskState] = as_async(desk, pool)
    assert isinstance(view, AsyncView)
    state = await view.reset(DRAFT, seed=0)
    assert await view.call(state, query("a")) == desk.call(desk.reset(DRAFT, seed=0), query("a"))
    assert await view.tools(DRAFT, turn=0) == desk.tools(DRAFT, turn=0)
    snapshot = await view.snapshot(state)
    assert (await view.restore(snapshot), await view.fork(snapshot, 2)) == (state, [state, state])
    assert (view.name, view.version, view.digest(state)) == (desk.name, desk.version, snapshot.snapshot_id)


async def test_a_world_that_is_asynchronous_by_itself_is_left_as_it_is(pool: ThreadPoolExecutor) -> None:
    native: Any = NativeDesk()
    assert as_async(native, pool) is native


async def test_calls_on_one_state_run_one_after_another_as_asked_and_others_beside_them(pool: ThreadPoolExecutor) -> None:
    desk = GatedDesk()
    view = AsyncView(desk, pool)
    state, other = await view.reset(DRAFT, seed=0), await view.reset(DRAFT, seed=0)
    asked = [asyncio.create_task(view.call(state, query(name))) for name in "abc"]
    beside = asyncio.create_task(view.call(other, query("beside")))
    await until(lambda: len(desk.begun) == 2)
    await asyncio.sleep(0.02)
    assert desk.begun == ["a", "beside"]
    desk.gate.set()
    await asyncio.gather(*asked, beside)
    assert [name for name in desk.begun if name != "beside"] == ["a", "b", "c"]
    assert view._lanes == {}


async def test_a_cancelled_call_is_carried_out_or_never_begun_and_nothing_overtakes_it(pool: ThreadPoolExecutor) -> None:
    desk = GatedDesk()
    view = AsyncView(desk, pool)
    state = await view.reset(DRAFT, seed=0)
    running, waiting, last = [asyncio.create_task(view.call(state, query(name))) for name in "abc"]
    await until(lambda: desk.begun == ["a"])
    for task in (running, waiting):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await asyncio.sleep(0.02)
    assert desk.begun == ["a"]
    desk.gate.set()
    await last
    assert desk.begun == ["a", "c"]
    assert view._lanes == {}


async def test_a_world_that_breaks_breaks_its_own_call_alone(pool: ThreadPoolExecutor) -> None:
    class Broken(TicketDesk):
        def call(self, state: DeskState, call: ToolCall) -> tuple[DeskState, Observation]:
            if call.call_id == "bad":
                raise WorldFailed("down")
            return super().call(state, call)

    view = AsyncView(Broken(), pool)
    state = await view.reset(DRAFT, seed=0)
    results = await asyncio.gather(*(view.call(state, query(name)) for name in ("bad", "good")), return_exceptions=True)
    assert isinstance(results[0], WorldFailed)
    assert isinstance(results[1], tuple)
    assert view._lanes == {}


async def test_a_view_without_threads_says_so() -> None:
    ended = ThreadPoolExecutor(1)
    view = AsyncView(TicketDesk(), ended)
    state = TicketDesk().reset(DRAFT, seed=0)
    ended.shutdown()
    with pytest.raises(WorldFailed, match="no threads"):
        await view.call(state, query("a"))
    assert view._lanes == {}


def test_an_asynchronous_world_serves_any_thread_from_one_loop_of_its_own() -> None:
    native = NativeDesk(0.01)
    view = SyncView[DeskState](native)  # type: ignore[arg-type]
    state = view.reset(DRAFT, seed=0)
    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(lambda number: view.call(state, query(str(number)))[1], range(16)))
    assert set(answers) == {TicketDesk().call(state, query("a"))[1]}
    assert len(native.threads) == 1 and threading.get_ident() not in native.threads
    assert view.restore(view.snapshot(state)) == state
    view.close()
    view.close()
    assert native.closed
    with pytest.raises(WorldFailed, match="was closed"):
        view.reset(DRAFT, seed=0)


def test_a_world_that_does_not_answer_is_given_up_and_one_that_asks_itself_is_told() -> None:
    view = SyncView[DeskState](NativeDesk(5.0), limit_s=0.05)  # type: ignore[arg-type]
    state = view.reset(DRAFT, seed=0)
    began = time.monotonic()
    with pytest.raises(WorldFailed, match=r"did not answer within 0\.05 s"):
        view.call(state, query("a"))
    assert time.monotonic() - began < 2

    async def asks_itself() -> None:
        view.reset(DRAFT, seed=0)

    with pytest.raises(WorldFailed, match="its own event loop"):
        asyncio.run_coroutine_threadsafe(asks_itself(), view._loop).result(5)
    view.close()


def test_closing_a_view_ends_the_calls_that_wait_for_it() -> None:
    view = SyncView[DeskState](NativeDesk(60.0))  # type: ignore[arg-type]
    state = view.reset(DRAFT, seed=0)
    with ThreadPoolExecutor(1) as callers:
        waiting = callers.submit(view.call, state, query("a"))
        time.sleep(0.05)
        view.close()
        with pytest.raises(WorldFailed, match="closed before it answered"):
            waiting.result(5)


def test_a_draft_of_another_world_is_refused_through_a_view_as_without() -> None:
    view = SyncView[DeskState](NativeDesk())  # type: ignore[arg-type]
    wrong = BundleDraft(name="x", world="bfcl", request=DRAFT.request, initial_state=DRAFT.initial_state)
    with pytest.raises(Exception, match="ticket_desk"):
        view.reset(wrong, seed=0)
    view.close()
