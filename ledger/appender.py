"""Group commit for asynchronous writers: whoever waits while a commit runs shares the next one. Writes the database from one thread."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psycopg

from ledger.errors import LedgerUnavailable, TallyError
from ledger.ledger import LedgerHandle
from ledger.store import New, Receipt

MAX_EVENTS = 500


@dataclass(frozen=True)
class _Waiting:
    events: Sequence[New]
    done: "asyncio.Future[Receipt]"


def _settle(waiting: _Waiting, result: Receipt | Exception) -> None:
    if waiting.done.done():
        return
    if isinstance(result, Receipt):
        waiting.done.set_result(result)
    else:
        waiting.done.set_exception(result)


class Appender:
    """Appends for one event loop; every call is durable when it returns, and fails on its own when its own events are bad."""

    def __init__(self, ledger: LedgerHandle) -> None:
        self.ledger = ledger
        self.commits = 0
        self.retried_alone = 0
        self._waiting: list[_Waiting] = []
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tally-append")
        self._running: asyncio.Task[None] | None = None

    async def append(self, events: Sequence[New]) -> Receipt:
        """Receipt for `events`, all of them durable or none.

        Raises:
            TallyError: as `ledger.store.append`; other callers of the same commit are not affected.
        """
        return await asyncio.shield(self.submit(events))

    def submit(self, events: Sequence[New]) -> "asyncio.Future[Receipt]":
        """As `append`, without waiting: the future is done when the events are durable or refused. Cancelling it takes nothing back."""
        waiting = _Waiting(events, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return waiting.done

    async def close(self) -> None:
        """Wait for what is under way, then end the thread."""
        if self._running is not None:
            await self._running
        self._thread.shutdown()

    async def _run(self) -> None:
        while self._waiting:
            group: list[_Waiting] = []
            while self._waiting and (not group or sum(len(w.events) for w in group) + len(self._waiting[0].events) <= MAX_EVENTS):
                group.append(self._waiting.pop(0))
            results: list[Receipt | Exception] | None = None
            try:
                results = await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, group)
            finally:
                # Whatever ends this task, nobody may wait for an answer that will not come.
                for n, waiting in enumerate(group):
                    _settle(
                        waiting, LedgerUnavailable("the append broke off; it may or may not be written") if results is None else results[n]
                    )

    def _commit(self, group: Sequence[_Waiting]) -> list[Receipt | Exception]:
        self.commits += 1
        try:
            together = self.ledger.append([event for waiting in group for event in waiting.events]).events
        except (TallyError, psycopg.Error) as error:
            if len(group) == 1:
                return [error]
            self.retried_alone += len(group)
            return [self._alone(waiting) for waiting in group]
        receipts: list[Receipt | Exception] = []
        for waiting in group:
            receipts.append(Receipt(together[: len(waiting.events)]))
            together = together[len(waiting.events) :]
        return receipts

    def _alone(self, waiting: _Waiting) -> Receipt | Exception:
        try:
            return self.ledger.append(waiting.events)
        except (TallyError, psycopg.Error) as error:
            return error
