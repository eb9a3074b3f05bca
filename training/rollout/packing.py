"""Packs the tokens of the rollouts of a collection as they end, many together. Writes the database from threads."""

import asyncio
from types import TracebackType

from ledger.ledger import LedgerHandle
from ledger.token_packing import STREAMS_AT_ONCE, pack_rollouts


class PackingEnded:
    """Packs what ended rollouts have staged: as soon as enough of them wait, and the others when it is left, however it is left.

    Until then their tokens are staged, where all readers find them too; those of a process that is killed stay there for `pack_ended`.

    Attributes:
        unpacked: ids of rollouts whose tokens stay staged because they do not fit what their events committed to.
    """

    def __init__(self, ledger: LedgerHandle, *, at_once: int = STREAMS_AT_ONCE) -> None:
        """`at_once` is the number of rollouts that are packed together."""
        self.unpacked: list[str] = []
        self._ledger, self._at_once = ledger, at_once
        self._waiting: list[str] = []
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "PackingEnded":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._running is not None:
            await self._running
        await self._pack(len(self._waiting))

    def ended(self, rollout_id: str) -> None:
        """Take a rollout that has ended."""
        self._waiting.append(rollout_id)
        if len(self._waiting) >= self._at_once and self._running is None:
            self._running = asyncio.create_task(self._pack_full())

    async def _pack_full(self) -> None:
        while len(self._waiting) >= self._at_once:
            await self._pack(self._at_once)
        self._running = None

    async def _pack(self, count: int) -> None:
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        if taken:
            packed = await asyncio.to_thread(pack_rollouts, self._ledger, taken)
            self.unpacked += [rollout_id for rollout_id, one in packed.items() if one.faults]
