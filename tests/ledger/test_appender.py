"""Group commit: shared commits, own failures."""

import asyncio

import psycopg
import pytest

from ledger.appender import Appender
from ledger.errors import IdempotencyConflict
from ledger.events import RewardDerived
from ledger.ledger import LedgerHandle
from ledger.store import Receipt


def reward(reward_id: str, value: float = 1.0) -> RewardDerived:
    return RewardDerived(reward_id=reward_id, rollout_id="r", rule="rule", rule_id="0" * 64, verdict_ids=[], value=value, reason="")


async def test_waiters_share_commits_and_all_are_durable(ledger: LedgerHandle) -> None:
    appender = Appender(ledger)
    receipts = await asyncio.gather(*(appender.append([ledger.new(reward(str(n)))]) for n in range(100)))
    await appender.close()
    assert [receipt.events[0].stream for receipt in receipts] == [f"reward-{n}" for n in range(100)]
    assert appender.commits < 20
    assert ledger.barrier() >= 100


async def test_a_bad_append_fails_alone(ledger: LedgerHandle) -> None:
    appender = Appender(ledger)
    await appender.append([ledger.new(reward("taken"))])
    work = [
        appender.append([ledger.new(reward("a"))]),
        appender.append([ledger.new(reward("taken", 0.0))]),
        appender.append([ledger.new(reward("b"))]),
    ]
    first, bad, last = await asyncio.gather(*work, return_exceptions=True)
    await appender.close()
    assert isinstance(first, Receipt)
    assert isinstance(last, Receipt)
    assert isinstance(bad, IdempotencyConflict)


async def test_a_caller_that_goes_away_does_not_undo_its_append(ledger: LedgerHandle) -> None:
    appender = Appender(ledger)
    task = asyncio.create_task(appender.append([ledger.new(reward("a"))]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await appender.append([ledger.new(reward("b"))])
    await appender.close()
    assert len(ledger.read_stream("reward-a")) == 1


async def test_an_error_of_the_database_reaches_its_waiter_and_the_next_append_works(ledger: LedgerHandle) -> None:
    appender = Appender(ledger)
    with psycopg.connect(ledger.url) as conn:
        conn.execute("ALTER TABLE event ADD CONSTRAINT planted CHECK (position('refused' IN encode(body, 'escape')) = 0)")
    with pytest.raises(psycopg.errors.CheckViolation):
        await appender.append([ledger.new(reward("refused"))])
    await appender.append([ledger.new(reward("fine"))])
    await appender.close()
    assert len(ledger.read_stream("reward-fine")) == 1
