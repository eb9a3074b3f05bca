"""The gate that calls go through: closed while weights are refreshed, and it knows when the last call has left."""

import asyncio
from collections.abc import Callable

from ledger.errors import WaitTimeout
from training.rollout.gateway_request import Refusal


class Gate:
    """Counts calls in flight and lets new ones in unless paused. For one event loop."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.in_flight = 0
        self.waiting = 0
        self.reason: str | None = None
        self.retry_after_s = 1.0
        self._monotonic = monotonic
        self._open = asyncio.Event()
        self._open.set()
        self._changed = asyncio.Event()

    @property
    def paused(self) -> bool:
        """Whether new calls are turned away."""
        return not self._open.is_set()

    def enter(self) -> None:
        """Count a call in; the caller has seen that the gate is open, in the same turn of the loop."""
        self.in_flight += 1

    def leave(self) -> None:
        """Count a call out."""
        self.in_flight -= 1
        if self.in_flight == 0:
            self._changed.set()

    async def pause(self, reason: str, *, retry_after_s: float) -> float:
        """Seconds it took until nothing was in flight; new calls are turned away from now on.

        Raises:
            WaitTimeout: somebody resumed before that.
        """
        self._open.clear()
        self.reason, self.retry_after_s = reason, retry_after_s
        started = self._monotonic()
        while self.in_flight and self.paused:
            self._changed.clear()
            await self._changed.wait()
        if self.in_flight:
            raise WaitTimeout(f"resumed while {self.in_flight} calls were still in flight; nothing was drained")
        return self._monotonic() - started

    def resume(self) -> None:
        """Let calls in again."""
        self.reason = None
        self._open.set()
        self._changed.set()

    async def wait_open(self, seconds: float) -> None:
        """Return when the gate is open.

        Raises:
            Refusal: 429 with Retry-After when it is still closed after `seconds`.
        """
        self.waiting += 1
        try:
            async with asyncio.timeout(seconds):
                await self._open.wait()
        except TimeoutError:
            headers = {"Retry-After": f"{max(1, round(self.retry_after_s))}", "X-Tally-Paused": "true"}
            raise Refusal(429, "paused", f"the gateway is paused: {self.reason}", headers=headers) from None
        finally:
            self.waiting -= 1
