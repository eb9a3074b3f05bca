"""Order: dense, the same for all readers, nothing skipped."""

import random
import threading
import time

import psycopg
import pytest

from ledger import order
from ledger.errors import WaitTimeout
from ledger.events import RewardDerived
from ledger.ledger import LedgerHandle


def reward(reward_id: str) -> RewardDerived:
    return RewardDerived(reward_id=reward_id, rollout_id="r", rule="rule", rule_id="0" * 64, verdict_ids=[], value=None, reason="none")


def test_an_own_write_is_seen_in_its_stream_before_it_is_ordered(each_ledger: LedgerHandle) -> None:
    each_ledger.append([each_ledger.new(reward("a"))])
    assert each_ledger.read_stream("reward-a")[0].position is None
    assert each_ledger.read() == []
    position = each_ledger.barrier()
    assert [event.position for event in each_ledger.read()] == [position]
    assert each_ledger.read_stream("reward-a")[0].position == position


def test_what_was_acknowledged_before_lies_lower(each_ledger: LedgerHandle) -> None:
    receipts = [each_ledger.append([each_ledger.new(reward(str(n)))]) for n in range(20)]
    positions = [each_ledger.wait_ordered(receipt)[0] for receipt in receipts]
    assert positions == sorted(positions)


def test_an_open_transaction_holds_nobody_up_and_is_ordered_when_it_commits(each_ledger: LedgerHandle) -> None:
    from ledger import store

    with psycopg.connect(each_ledger.url) as slow:
        store.append(slow, each_ledger.ledger_id, "test", [each_ledger.new(reward("slow"))])
        first = each_ledger.wait_ordered(each_ledger.append([each_ledger.new(reward("fast"))]))[0]
        assert [event.stream for event in each_ledger.read()] == ["reward-fast"]
        slow.commit()
    last = each_ledger.barrier()
    assert [event.stream for event in each_ledger.read()] == ["reward-fast", "reward-slow"]
    assert last == first + 1


def test_a_foreign_open_writer_stalls_nothing(each_ledger: LedgerHandle) -> None:
    with psycopg.connect(each_ledger.url) as foreign:
        foreign.execute("CREATE TEMPORARY TABLE held (x int)")
        foreign.execute("INSERT INTO held VALUES (1)")
        for n in range(5):
            each_ledger.wait_ordered(each_ledger.append([each_ledger.new(reward(str(n)))]), timeout_s=5)


def test_a_rolled_back_id_is_given_up_once_nobody_can_hold_it(each_ledger: LedgerHandle) -> None:
    from ledger import store

    with psycopg.connect(each_ledger.url) as lost:
        store.append(lost, each_ledger.ledger_id, "test", [each_ledger.new(reward("lost"))])
        each_ledger.append([each_ledger.new(reward("kept"))])
        each_ledger.barrier()
        with each_ledger.connection() as conn:
            assert conn.execute("SELECT cardinality(holes), dead FROM order_step ORDER BY step DESC LIMIT 1").fetchone() == (1, 0)
        lost.rollback()
    each_ledger.append([each_ledger.new(reward("after"))])
    each_ledger.barrier()
    with each_ledger.connection() as conn:
        assert conn.execute("SELECT cardinality(holes), dead FROM order_step ORDER BY step DESC LIMIT 1").fetchone() == (0, 1)
    assert [event.stream for event in each_ledger.read()] == ["reward-kept", "reward-after"]


def test_ordering_refuses_to_run_inside_a_writing_transaction(each_ledger: LedgerHandle) -> None:
    with pytest.raises(psycopg.errors.ActiveSqlTransaction), each_ledger.connection() as conn:
        conn.execute("SELECT pg_current_xact_id()")
        conn.execute("SELECT * FROM order_events()")


def test_reading_by_id_skips_what_commits_late_and_reading_by_position_does_not(ledger: LedgerHandle) -> None:
    from ledger import store

    def by_id(last: int) -> list[int]:
        with ledger.connection() as conn:
            return [int(row[0]) for row in conn.execute("SELECT id FROM event WHERE id > %s ORDER BY id", (last,))]

    last = ledger.barrier()
    naive = by_id(0)
    with psycopg.connect(ledger.url) as late:
        store.append(late, ledger.ledger_id, "test", [ledger.new(reward("late"))])
        ledger.append([ledger.new(reward("early"))])
        naive += by_id(naive[-1])
        ledger.barrier()
        ordered = ledger.read(last)
        late.commit()
    naive += by_id(naive[-1])
    ledger.barrier()
    ordered += ledger.read(ordered[-1].position or 0)
    assert len(by_id(0)) - len(naive) == 1
    assert [event.stream for event in ordered] == ["reward-early", "reward-late"]


def test_small_steps_order_everything(ledger: LedgerHandle) -> None:
    ledger.append([ledger.new(reward(str(n))) for n in range(25)])
    more, steps = True, 0
    while more:
        _, more = order.step(ledger.pool, wait=True, max_events=4)
        steps += 1
    assert steps >= 6
    assert [event.version for event in ledger.read()] == [1] * 25


def test_a_wait_that_times_out_says_the_event_is_durable(ledger: LedgerHandle) -> None:
    receipt = ledger.append([ledger.new(reward("a"))])
    with psycopg.connect(ledger.url) as holder:
        holder.execute("SELECT pg_advisory_xact_lock(74616, 1)")
        with pytest.raises(WaitTimeout, match="durable"):
            ledger.wait_ordered(receipt, timeout_s=0.2)
    assert ledger.wait_ordered(receipt)


def test_tailing_readers_see_every_event_once_in_one_order(ledger: LedgerHandle) -> None:
    acknowledged: list[str] = []
    stop = threading.Event()

    def write(writer: int) -> None:
        from ledger import store

        rng = random.Random(writer)
        for n in range(25):
            with psycopg.connect(ledger.url) as conn:
                store.append(conn, ledger.ledger_id, "test", [ledger.new(reward(f"{writer}-{n}"))])
                if rng.random() < 0.2:
                    time.sleep(rng.random() * 0.02)
                if rng.random() < 0.1:
                    conn.rollback()
                    continue
                conn.commit()
            acknowledged.append(f"reward-{writer}-{n}")

    def tail(seen: list[tuple[int | None, str]]) -> None:
        while not stop.is_set():
            order.step(ledger.pool)
            seen.extend((event.position, event.stream) for event in ledger.read(seen[-1][0] or 0 if seen else 0))

    readers: list[list[tuple[int | None, str]]] = [[], [], []]
    writers = [threading.Thread(target=write, args=(n,)) for n in range(6)]
    tails = [threading.Thread(target=tail, args=(seen,)) for seen in readers]
    for thread in writers + tails:
        thread.start()
    for thread in writers:
        thread.join()
    last = ledger.barrier()
    deadline = time.monotonic() + 20
    while any(not seen or seen[-1][0] != last for seen in readers) and time.monotonic() < deadline:
        time.sleep(0.01)
    stop.set()
    for thread in tails:
        thread.join()
    assert readers[0] == readers[1] == readers[2]
    assert sorted(stream for _, stream in readers[0]) == sorted(acknowledged)
    positions = [position for position, _ in readers[0]]
    assert positions == list(range(positions[0] or 0, last + 1))
