"""Many writers through one `Appender` against a commit each, interleaved."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

import pytest

from ledger import queries
from ledger.appender import Appender
from ledger.events import RewardDerived
from ledger.ledger import LedgerHandle

pytestmark = pytest.mark.bench
ROUNDS, CALLS, CALLERS = 5, 160, 16


async def rate(work: Callable[[int], Awaitable[None]]) -> float:
    """Pieces of work a second with `CALLERS` callers."""
    began = time.perf_counter()

    async def caller(first: int) -> None:
        for n in range(first, CALLS, CALLERS):
            await work(n)

    await asyncio.gather(*(caller(first) for first in range(CALLERS)))
    return CALLS / (time.perf_counter() - began)


def report(name: str, ours: list[float], control: list[float], unit: str) -> None:
    """Print medians, spreads and the paired ratio."""
    ratios = [a / b for a, b in zip(ours, control, strict=True)]
    shown = [f"{statistics.median(values):.3g} [{min(values):.3g}, {max(values):.3g}]" for values in (ours, control, ratios)]
    print(f"\n{name}: {shown[0]} {unit}, control {shown[1]} {unit}, ratio {shown[2]} over {len(ours)} interleaved rounds")


async def test_shared_commits_against_a_commit_each(ledger: LedgerHandle) -> None:
    shared, alone = [], []
    appender = Appender(ledger)
    for round_number in range(ROUNDS):

        def body(kind: str, n: int, round_number: int = round_number) -> RewardDerived:
            return RewardDerived(
                reward_id=f"{kind}-{round_number}-{n}", rollout_id="r", rule="rule", rule_id="0" * 64, verdict_ids=[], value=1.0, reason=""
            )

        async def together(n: int) -> None:
            await appender.append([ledger.new(body("shared", n))])

        async def each(n: int) -> None:
            await asyncio.to_thread(ledger.append, [ledger.new(body("alone", n))])

        alone.append(await rate(each))
        shared.append(await rate(together))
    await appender.close()
    report("appends, 16 writers", shared, alone, "events/s")
    assert queries.fresh(ledger) == 2 * ROUNDS * CALLS + 1
