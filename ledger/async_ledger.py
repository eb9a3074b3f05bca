"""The ledger for asynchronous programs: append, read and follow on one event loop, over a pool of psycopg connections."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from ledger import order, store
from ledger.arrays import Uuids
from ledger.blobs import Pending
from ledger.errors import LedgerUnavailable, WaitTimeout
from ledger.events import EventBody
from ledger.ids import node_id
from ledger.ledger import LedgerHandle, open_ledger, raise_unavailable
from ledger.order import Recorded
from ledger.store import New, Receipt
from ledger.subscribe import CHANNEL

AsyncConnection = psycopg.AsyncConnection[Any]
Pool = AsyncConnectionPool[AsyncConnection]


class AsyncLedger:
    """One project of one ledger on one event loop, with the same promises as `LedgerHandle`; made by `open_async`.

    What is short runs on the loop's own connections; what moves much data (large blobs, bulk appends) runs in a thread on the
    synchronous handle, so that it holds nobody up.

    Attributes:
        handle: the same ledger for synchronous code.
    """

    def __init__(self, handle: LedgerHandle, pool: Pool) -> None:
        self.handle, self.pool = handle, pool

    async def pending(self, data: bytes | str, *, media: str = "text/plain", subject_id: str | None = None) -> Pending:
        """A blob ready to be appended with the event that names it."""
        return await asyncio.to_thread(self.handle.pending, data, media=media, subject_id=subject_id)

    def new(self, body: EventBody, *pending: Pending, correlation_id: str | None = None, causation_id: str | None = None) -> New:
        """An event to append, stamped with the handle's clock and actor."""
        return self.handle.new(body, *pending, correlation_id=correlation_id, causation_id=causation_id)

    async def append(self, events: Sequence[New], *, expected: Mapping[str, int] | None = None) -> Receipt:
        """Receipt for events that are durably committed, all or none; see `ledger.store.append`."""
        batch = self.handle.prepare(events, expected=expected)
        if batch.large or not batch.small or not self.handle.rights.appends:
            return await asyncio.to_thread(self.handle.append_prepared, batch)
        async with self._connection() as conn:
            try:
                cursor = await conn.execute(*store.small_query(self.handle.ledger_id, self.handle.project, batch))
            except psycopg.Error as error:
                self.handle.raise_known(error)
                raise
            return store.small_receipt(batch, await cursor.fetchone())

    async def read(
        self, since: int = 0, *, kinds: Sequence[str] | None = None, limit: int = 1000, until: int | None = None
    ) -> list[Recorded]:
        """Ordered events with a position in (since, until], at most `limit`, of the given kinds or of all."""
        return await self._recorded(order.read_query(self.handle.project, since, kinds=kinds, limit=limit, until=until))

    async def read_stream(self, stream: str) -> list[Recorded]:
        """All committed events of a stream."""
        return await self._recorded(order.stream_query(self.handle.ledger_id, node_id(self.handle.project, stream)))

    async def barrier(self) -> int:
        """Position up to which everything committed before the call is ordered."""
        more = True
        while more:
            more = await self._step(wait=True)
        return await self._high()

    async def wait_ordered(self, receipt: Receipt, *, timeout_s: float = 10.0) -> list[int]:
        """Positions of a receipt's events, helping to order them.

        Raises:
            WaitTimeout: not ordered in time; the events are durable all the same.
        """
        deadline = time.monotonic() + timeout_s
        wanted = [item.event_id for item in receipt.events]
        while True:
            await self._step(wait=False)
            async with self._connection() as conn:
                rows = await (await conn.execute(order.POSITIONS, (Uuids(set(wanted)),))).fetchall()
            positions = {str(row[0]): int(row[1]) for row in rows}
            if len(positions) == len(set(wanted)):
                return [positions[event_id] for event_id in wanted]
            if time.monotonic() > deadline:
                raise WaitTimeout(order.not_ordered(len(set(wanted)) - len(positions), timeout_s))
            await asyncio.sleep(0.002)

    async def blob(self, blob_id: str) -> bytes:
        """Bytes of a blob, checked against its commitment."""
        return await asyncio.to_thread(self.handle.blob, blob_id)

    async def subscribe(
        self, since: int = 0, *, kinds: Sequence[str] | None = None, batch: int = 1000, poll_s: float = 0.1
    ) -> AsyncIterator[list[Recorded]]:
        """Ordered events above `since`, as they come, in batches; see `ledger.subscribe.Subscription`."""
        listener = await psycopg.AsyncConnection.connect(self.handle.url, autocommit=True, application_name="tallystick-subscription")
        async with listener:
            await listener.execute(f"LISTEN {CHANNEL}")
            while True:
                await self._step(wait=False)
                goal = await self._high()
                while since < goal:
                    events = await self.read(since, kinds=kinds, limit=batch, until=goal)
                    since = (events[-1].position or goal) if len(events) == batch else goal
                    if events:
                        yield events
                async for _ in listener.notifies(timeout=poll_s, stop_after=1):
                    pass

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection]:
        try:
            async with self.pool.connection() as conn:
                yield conn
        except (PoolTimeout, psycopg.OperationalError) as error:
            raise_unavailable(self.handle.url, error)
            raise

    async def _step(self, *, wait: bool) -> bool:
        async with self._connection() as conn:
            row = await (await conn.execute(order.STEP, (order.STEP_EVENTS, wait))).fetchone()
        return row is not None and bool(row[1])

    async def _high(self) -> int:
        async with self._connection() as conn:
            row = await (await conn.execute(order.HIGH)).fetchone()
        return 0 if row is None else int(row[0])

    async def _recorded(self, query: order.Query) -> list[Recorded]:
        async with self._connection() as conn:
            return [order.recorded(row) for row in await (await conn.execute(*query)).fetchall()]


@asynccontextmanager
async def open_async(url: str, *, project: str, actor_id: str, pool_size: int = 8, connect_s: float = 20.0) -> AsyncIterator[AsyncLedger]:
    """The ledger in a migrated database, for one event loop.

    Raises:
        LedgerUnavailable, SchemaMismatch: as for `ledger.ledger.open_ledger`.
    """
    handle = await asyncio.to_thread(_opened, url, project, actor_id, connect_s)
    pool: Pool = AsyncConnectionPool(
        url, min_size=1, max_size=pool_size, timeout=connect_s, open=False, name="tallystick-async",
        kwargs={"options": "-c synchronous_commit=on", "application_name": "tallystick", "autocommit": True},
    )  # fmt: skip
    try:
        await pool.open(wait=True, timeout=connect_s)
        yield AsyncLedger(handle, pool)
    except PoolTimeout as error:
        raise LedgerUnavailable(f"no connection within {connect_s} s: {error}") from error
    finally:
        await pool.close()
        await asyncio.to_thread(handle.close)


def _opened(url: str, project: str, actor_id: str, connect_s: float) -> LedgerHandle:
    return open_ledger(url, project=project, actor_id=actor_id, connect_s=connect_s, pool_size=2)
