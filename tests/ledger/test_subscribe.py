"""Following the log: every event once and in order, woken by the ordering step or by looking; a consumer's effect exactly once."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from ledger import order
from ledger.append_many import append_many
from ledger.async_ledger import open_async
from ledger.errors import IdempotencyConflict, LedgerUnavailable, VersionConflict, WaitTimeout
from ledger.events import RewardDerived
from ledger.ledger import LedgerHandle
from ledger.order import Recorded
from ledger.subscribe import Subscription, consume, follow, subscribe


def reward(reward_id: str, value: float = 1.0) -> RewardDerived:
    return RewardDerived(reward_id=reward_id, rollout_id="r", rule="rule", rule_id="0" * 64, verdict_ids=[], value=value, reason="none")


def gather(subscription: Subscription, seen: list[Recorded], wanted: int) -> threading.Thread:
    def run() -> None:
        with subscription as batches:
            for batch in batches:
                seen.extend(batch)
                if len(seen) >= wanted:
                    subscription.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_subscription_gives_what_is_there_and_then_what_comes(each_ledger: LedgerHandle) -> None:
    each_ledger.append([each_ledger.new(reward(f"old-{n}")) for n in range(5)])
    seen: list[Recorded] = []
    thread = gather(subscribe(each_ledger, batch=2, poll_s=0.05), seen, 8)
    for n in range(3):
        each_ledger.append([each_ledger.new(reward(f"new-{n}"))])
    thread.join(20)
    assert [event.key for event in seen] == ["derived"] * 8
    assert [event.stream for event in seen] == [f"reward-old-{n}" for n in range(5)] + [f"reward-new-{n}" for n in range(3)]
    positions = [event.position or 0 for event in seen]
    assert positions == sorted(positions)


def test_a_subscription_goes_on_where_another_stopped_and_sees_only_its_kinds(ledger: LedgerHandle) -> None:
    ledger.append([ledger.new(reward(str(n))) for n in range(4)])
    middle = ledger.barrier() - 2
    seen: list[Recorded] = []
    gather(subscribe(ledger, since=middle, kinds=["RewardDerived"], poll_s=0.05), seen, 2).join(20)
    assert [event.stream for event in seen] == ["reward-2", "reward-3"]
    with subscribe(ledger, kinds=["VerdictGiven"], poll_s=0.01) as none:
        threading.Timer(0.1, none.close).start()
        assert list(none) == []
        assert none.position == ledger.barrier()


def test_the_ordering_step_wakes_a_subscription_long_before_it_would_look(ledger: LedgerHandle) -> None:
    seen: list[Recorded] = []
    subscription = subscribe(ledger, since=ledger.barrier(), poll_s=30.0)
    thread = gather(subscription, seen, 1)
    time.sleep(0.5)
    began = time.monotonic()
    ledger.wait_ordered(ledger.append([ledger.new(reward("a"))]))
    thread.join(20)
    assert len(seen) == 1 and time.monotonic() - began < 10
    assert (subscription.counters.told, subscription.counters.found) == (1, 0)


def test_a_lost_listener_is_found_out_and_no_event_with_it(ledger: LedgerHandle) -> None:
    seen: list[Recorded] = []
    subscription = subscribe(ledger, since=ledger.barrier(), poll_s=0.05)
    thread = gather(subscription, seen, 2)
    time.sleep(0.2)
    ledger.append([ledger.new(reward("a"))])
    with psycopg.connect(ledger.url, autocommit=True) as conn:
        conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tallystick-subscription'")
    deadline = time.monotonic() + 20
    while subscription.counters.reconnected == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    ledger.append([ledger.new(reward("b"))])
    thread.join(20)
    assert [event.stream for event in seen] == ["reward-a", "reward-b"]
    assert subscription.counters.reconnected >= 1


def _table(ledger: LedgerHandle) -> None:
    with ledger.connection() as conn:
        conn.execute("CREATE TABLE effect (position bigint)")


def _note(conn: psycopg.Connection[Any], events: Sequence[Recorded]) -> None:
    for event in events:
        conn.execute("INSERT INTO effect VALUES (%s)", (event.position,))


def _effects(ledger: LedgerHandle) -> list[int]:
    with ledger.connection() as conn:
        return [int(row[0]) for row in conn.execute("SELECT position FROM effect ORDER BY position")]


def test_what_a_handler_raises_undoes_its_batch_and_the_cursor(ledger: LedgerHandle) -> None:
    _table(ledger)
    ledger.append([ledger.new(reward(str(n))) for n in range(3)])

    def broken(conn: psycopg.Connection[Any], events: Sequence[Recorded]) -> None:
        _note(conn, events)
        raise RuntimeError("the handler broke")

    with pytest.raises(RuntimeError, match="broke"):
        consume(ledger, "c", broken)
    assert _effects(ledger) == []
    assert consume(ledger, "c", _note, batch=2) < ledger.barrier()
    assert consume(ledger, "c", _note) == ledger.barrier()
    assert len(_effects(ledger)) == 3
    assert consume(ledger, "c", _note) == ledger.barrier()
    assert len(_effects(ledger)) == 3


def test_several_processes_of_one_consumer_have_each_effect_once(ledger: LedgerHandle) -> None:
    _table(ledger)
    done = threading.Event()
    threads = [threading.Thread(target=follow, args=(ledger, "c", _note), kwargs={"stop": done.is_set, "poll_s": 0.02}) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(30):
        ledger.append([ledger.new(reward(f"{n}-{k}")) for k in range(3)])
    goal = ledger.barrier()
    deadline = time.monotonic() + 30
    while len(_effects(ledger)) < 90 and time.monotonic() < deadline:
        time.sleep(0.02)
    done.set()
    for thread in threads:
        thread.join(20)
    assert _effects(ledger) == [event.position for event in order.read_all(ledger.pool, "test")]
    assert consume(ledger, "c", _note) == goal


async def test_the_asynchronous_ledger_keeps_the_same_promises(ledger_url: str) -> None:
    async with open_async(ledger_url, project="test", actor_id="tester") as ledger:
        blob = await ledger.pending("what a model wrote")
        first = await ledger.append([ledger.new(reward("a"), blob)], expected={"reward-a": 0})
        assert [(e.version, e.created) for e in (await ledger.append([ledger.new(reward("a"))])).events] == [(1, False)]
        with pytest.raises(IdempotencyConflict, match="derived"):
            await ledger.append([ledger.new(reward("a", 0.5))])
        with pytest.raises(VersionConflict, match="version 0; expected 3"):
            await ledger.append([ledger.new(reward("b"))], expected={"reward-b": 3})
        assert (await ledger.read_stream("reward-a"))[0].position is None
        position = (await ledger.wait_ordered(first))[0]
        many = await ledger.append([ledger.new(reward(f"many-{n}")) for n in range(200)])
        assert len(many.events) == 200 and all(e.created for e in many.events)
        assert await ledger.barrier() >= position + 200
        assert [e.stream for e in await ledger.read(position, limit=2)] == ["reward-many-0", "reward-many-1"]
        seen: list[Recorded] = []
        async for batch in ledger.subscribe(position, batch=64):
            seen += batch
            if len(seen) == 200:
                break
        assert [e.stream for e in seen] == [f"reward-many-{n}" for n in range(200)]


async def test_the_asynchronous_wait_that_times_out_says_the_event_is_durable(ledger_url: str) -> None:
    async with open_async(ledger_url, project="test", actor_id="tester") as ledger:
        receipt = await ledger.append([ledger.new(reward("a"))])
        with psycopg.connect(ledger_url) as holder:
            holder.execute("SELECT pg_advisory_xact_lock(74616, 1)")
            with pytest.raises(WaitTimeout, match="1 events not ordered.*durable"):
                await ledger.wait_ordered(receipt, timeout_s=0.2)


async def test_an_asynchronous_ledger_without_a_database_is_a_clear_error() -> None:
    with pytest.raises(LedgerUnavailable, match=r"127\.0\.0\.1:1/x"):
        async with open_async("postgresql://me:secret@127.0.0.1:1/x?connect_timeout=1", project="p", actor_id="a", connect_s=1.0):
            pass


def test_a_long_run_is_written_in_order_and_a_bad_event_stops_it_there(ledger: LedgerHandle) -> None:
    receipts = list(append_many(ledger, (ledger.new(reward(f"{n:03}")) for n in range(230)), events_each=100))
    assert [len(receipt.events) for receipt in receipts] == [100, 100, 30]
    ledger.barrier()
    assert [event.stream for event in ledger.read(1)] == [f"reward-{n:03}" for n in range(230)]
    done: list[int] = []
    with pytest.raises(IdempotencyConflict, match="reward-005"):
        for receipt in append_many(
            ledger, [*(ledger.new(reward(f"x{n}")) for n in range(60)), ledger.new(reward("005", 0.5))], events_each=60
        ):
            done.append(len(receipt.events))
    assert done == [60]
    assert [item.created for item in ledger.append([ledger.new(reward(f"{n:03}")) for n in range(230)]).events] == [False] * 230
