"""Partitions: narrow ones, so that a small log crosses many; nothing is refused for want of one, and each guards itself."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from ledger import blobs, lineage, order, store, verify
from ledger.errors import IdempotencyConflict, VersionConflict
from ledger.events import RewardDerived, ToolCalled
from ledger.ledger import LedgerHandle, open_ledger
from ledger.migrate import upgrade
from tests.conftest import Cluster

WIDTH = 1000


def reward(reward_id: str) -> RewardDerived:
    return RewardDerived(reward_id=reward_id, rollout_id="r", rule="rule", rule_id="0" * 64, verdict_ids=[], value=None, reason="none")


def opened(cluster: Cluster) -> Iterator[LedgerHandle]:
    """A ledger whose partitions hold a thousand rows' numbers each."""
    url = cluster.empty_database()
    upgrade(url, partition_width=WIDTH)
    with open_ledger(url, project="test", actor_id="tester") as handle:
        yield handle
    cluster.drop(url)


@pytest.fixture
def narrow(cluster: Cluster) -> Iterator[LedgerHandle]:
    """On the newest server."""
    yield from opened(cluster)


@pytest.fixture
def each_narrow(each_cluster: Cluster) -> Iterator[LedgerHandle]:
    """On each supported end of the range of servers."""
    yield from opened(each_cluster)


def parts(ledger: LedgerHandle, parent: str) -> int:
    """How many partitions a table has."""
    with ledger.connection() as conn:
        row = conn.execute("SELECT count(*) FROM pg_inherits WHERE inhparent = %s::regclass", (parent,)).fetchone()
    assert row is not None
    return int(row[0])


def ahead(ledger: LedgerHandle, parent: str, reached: int) -> float:
    """Numbers left in the partitions, in widths."""
    return parts(ledger, parent) - reached / WIDTH


def test_one_append_may_be_many_partitions_long_and_is_ordered_in_one_step(each_narrow: LedgerHandle) -> None:
    each_narrow.append([each_narrow.new(reward(f"bulk-{n}")) for n in range(4500)])
    assert order.step(each_narrow.pool) == (True, False)
    assert [event.position for event in each_narrow.read(limit=5000)] == list(range(2, 4502))
    assert parts(each_narrow, "event") == parts(each_narrow, "event_order") == 6
    assert verify.verify(each_narrow).intact


def test_small_appends_cross_partitions_and_one_is_always_ready(narrow: LedgerHandle) -> None:
    with narrow.connection() as conn:
        conn.execute("SELECT setval('event_id_seq', 900)")
    for n in range(30):
        narrow.append([narrow.new(reward(f"small-{n}-{m}")) for m in range(40)])
        assert ahead(narrow, "event", 900 + 40 * (n + 1)) > 0.5
    assert narrow.barrier() == 1201
    assert verify.verify(narrow).intact


def test_ids_that_a_rollback_burns_cost_no_later_append_its_partition(narrow: LedgerHandle) -> None:
    with psycopg.connect(narrow.url) as lost:
        store.append(lost, narrow.ledger_id, "test", [narrow.new(reward(f"lost-{n}")) for n in range(2600)])
        lost.rollback()
    assert parts(narrow, "event") == 1
    narrow.append([narrow.new(reward("kept"))])
    assert parts(narrow, "event") == 4
    assert [event.stream for event in (narrow.barrier(), narrow.read())[1]] == ["reward-kept"]


def test_blobs_find_room_by_either_way_of_writing(narrow: LedgerHandle) -> None:
    small = [narrow.pending(f"text {n}") for n in range(40)]
    with narrow.connection() as conn:
        conn.execute("SELECT setval('blob_no_seq', 2990)")
    with narrow.connection() as conn:
        blobs.write(conn, small[:20])
        conn.execute("SELECT setval('blob_no_seq', 5990)")
    narrow.append([narrow.new(reward("r"), *small[20:])])
    assert parts(narrow, "blob_chunk") == 7
    assert [narrow.blob(item.ref.blob_id) for item in small] == [f"text {n}".encode() for n in range(40)]


def test_a_stream_and_a_key_are_unique_across_partitions(narrow: LedgerHandle) -> None:
    text = narrow.pending("text")
    tool = ToolCalled(
        rollout_id="r", index=0, turn=0, model_call_id=None, tool_call_id="t", name=text.ref, arguments_sampled=text.ref,
        arguments_parsed=None, result=text.ref, error_class=None, state_before="0" * 64, state_after="0" * 64, latency_s=0.0,
    )  # fmt: skip
    first = narrow.append([narrow.new(tool, text)]).events[0]
    with narrow.connection() as conn:
        conn.execute("SELECT setval('event_id_seq', 3500)")
    again = narrow.append([narrow.new(tool)]).events[0]
    assert (again.event_id, again.version, again.created) == (first.event_id, 1, False)
    with pytest.raises(IdempotencyConflict):
        narrow.append([narrow.new(tool.model_copy(update={"latency_s": 1.0}))])
    later = tool.model_copy(update={"index": 1})
    with pytest.raises(VersionConflict, match="is at version 1; expected 0"):
        narrow.append([narrow.new(later)], expected={"rollout-r": 0})
    assert narrow.append([narrow.new(later)]).events[0].version == 2
    assert [event.version for event in narrow.read_stream("rollout-r")] == [1, 2]


def test_a_chain_over_partitions_is_traced(narrow: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    with narrow.connection() as conn:
        conn.execute("SELECT setval('event_id_seq', 1990)")
    sealed(narrow)
    narrow.barrier()
    found = lineage.trace(narrow, "reward-a")
    assert found.intact and len(found.steps) == 3
    assert verify.verify(narrow).intact


def test_writers_that_need_a_partition_at_once_make_it_once(each_narrow: LedgerHandle) -> None:
    def write(writer: int) -> None:
        for n in range(12):
            each_narrow.append([each_narrow.new(reward(f"{writer}-{n}-{m}")) for m in range(100 if writer % 2 else 40)])
            if writer == 0:
                order.step(each_narrow.pool)

    with ThreadPoolExecutor(6) as writers:
        list(writers.map(write, range(6)))
    assert each_narrow.barrier() == 1 + 12 * 3 * 140
    assert verify.verify(each_narrow).intact
    assert parts(each_narrow, "event") == len(set(partition_numbers(each_narrow)))


def partition_numbers(ledger: LedgerHandle) -> list[str]:
    """Where each partition of `event` begins."""
    with ledger.connection() as conn:
        rows: list[Any] = conn.execute(
            "SELECT pg_get_expr(relpartbound, oid) FROM pg_class JOIN pg_inherits ON inhrelid = oid WHERE inhparent = 'event'::regclass"
        ).fetchall()
    return [str(row[0]) for row in rows]


def test_nobody_waits_for_an_extension_while_there_is_room(narrow: LedgerHandle) -> None:
    with psycopg.connect(narrow.url) as busy:
        busy.execute("SELECT pg_advisory_xact_lock(74616, 4)")
        with narrow.connection() as conn:
            conn.execute("SELECT setval('event_id_seq', 700)")
            conn.execute("SET LOCAL lock_timeout = '1s'")
            store.append(conn, narrow.ledger_id, "test", [narrow.new(reward("fast"))])
        assert parts(narrow, "event") == 1
    narrow.append([narrow.new(reward("next"))])
    assert parts(narrow, "event") == 2


@pytest.mark.parametrize("statement", ["UPDATE {} SET id = id", "DELETE FROM {}", "TRUNCATE {}"])
@pytest.mark.parametrize("parent", ["event", "event_order"])
def test_a_statement_that_names_a_partition_is_refused_by_it(narrow: LedgerHandle, parent: str, statement: str) -> None:
    narrow.append([narrow.new(reward(f"{n}")) for n in range(1500)])
    narrow.barrier()
    for number in range(parts(narrow, parent)):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="is append-only"), narrow.connection() as conn:
            conn.execute(statement.format(f"{parent}_p{number}"))
