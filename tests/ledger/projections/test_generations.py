"""Generations: a rebuild beside live readers, one swap for all views, old tables dropped, and every kill survived."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from ledger.errors import UnknownEventKind
from ledger.ledger import LedgerHandle
from ledger.migrate import upgrade
from ledger.projections import MODELS, catch_up, folded, generations, positions, rebuild
from tests.ledger.conftest import History
from tests.ledger.projections.histories import age, copied, lines, shown, stored, table, tables

MARKED = "SELECT (SELECT max(position) FROM reward_view), (SELECT max(model_calls) FROM rollout_view), (SELECT max(name) FROM bundle_view)"


@pytest.fixture
def folded_once(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> LedgerHandle:
    """A ledger with one whole history, folded, and marked so that old rows can be told from new ones."""
    sealed(ledger)
    ledger.barrier()
    catch_up(ledger)
    with ledger.connection() as conn:
        conn.execute("UPDATE rollout_view SET model_calls = 99")
        conn.execute("UPDATE reward_view SET position = 99")
        conn.execute("UPDATE bundle_view SET name = 'marked'")
    return ledger


def seen(ledger: LedgerHandle) -> tuple[Any, ...]:
    with ledger.connection() as conn:
        row = conn.execute(MARKED).fetchone()
    assert row is not None
    return tuple(row)


def indexes(ledger: LedgerHandle) -> set[tuple[str, str]]:
    """Read model and columns of every index of the tables that the views show."""
    current = {g.table: name for name in MODELS for g in stored(ledger, name) if g.shown}
    with ledger.connection() as conn:
        rows = conn.execute("SELECT tablename, indexdef FROM pg_indexes WHERE tablename = ANY (%s)", (list(current),)).fetchall()
    return {(current[table], definition.partition("USING")[2]) for table, definition in rows}


OLD, NEW = (99, 99, "marked"), (20, 2, "desk_0")


def test_a_fresh_database_has_empty_views_and_migrating_again_makes_no_more(ledger: LedgerHandle) -> None:
    before = {name: tables(ledger, name) for name in MODELS}
    assert all(len(found) == 1 for found in before.values())
    assert {name: shown(ledger, name) for name in MODELS} == dict.fromkeys(MODELS, b"")
    upgrade(ledger.url)
    assert {name: tables(ledger, name) for name in MODELS} == before


@pytest.mark.parametrize("aged", [False, True])
def test_readers_see_the_old_rows_until_all_new_ones_are_there(folded_once: LedgerHandle, aged: bool) -> None:
    steps, before = list[tuple[int, int]](), indexes(folded_once)
    if aged:
        for name in MODELS:
            age(folded_once, name)

    def progress(done: int, total: int) -> None:
        steps.append((done, total))
        assert seen(folded_once) == OLD

    result = rebuild(folded_once, batch=4, progress=progress)
    assert seen(folded_once) == NEW
    assert steps[0] == (4, 21) and steps[-1] == (21, 21)
    assert result.positions == positions(folded_once) == dict.fromkeys(MODELS, 21)
    assert (result.dropped, result.left) == (len(MODELS), 0)
    assert all(len(tables(folded_once, name)) == 1 for name in MODELS)
    assert indexes(folded_once) == before
    rebuild(folded_once)
    assert seen(folded_once) == NEW


def test_a_change_of_source_is_shown_when_it_has_caught_up(folded_once: LedgerHandle) -> None:
    for name in MODELS:
        age(folded_once, name)
    history = History(folded_once)
    history.start("rollout-b", 1)
    folded_once.barrier()
    assert seen(folded_once) == OLD
    catch_up(folded_once, batch=3)
    assert seen(folded_once) == NEW
    assert all([g.current for g in stored(folded_once, name)] == [True] for name in MODELS)


def test_the_old_generation_keeps_catching_up_while_the_new_one_is_folded(folded_once: LedgerHandle) -> None:
    history = History(folded_once)
    added = iter(range(3))

    def progress(_done: int, _total: int) -> None:
        for n in added:
            history.start(f"live-{n}", n)
            folded_once.barrier()
            catch_up(folded_once)
            with folded_once.connection() as conn:
                assert conn.execute("SELECT count(*) FROM rollout_view").fetchone() == (n + 2,)
            return

    assert rebuild(folded_once, batch=5, progress=progress).positions["rollouts"] == 24
    assert {name: table(folded_once, name) for name in MODELS} == {name: lines(folded(MODELS[name], folded_once.read())) for name in MODELS}


def test_only_the_read_models_that_are_named_are_folded_again(folded_once: LedgerHandle) -> None:
    assert set(rebuild(folded_once, "rewards", "bundles").positions) == {"rewards", "bundles"}
    assert seen(folded_once) == (20, 99, "desk_0")


def test_readers_see_all_old_views_or_all_new_ones_and_never_an_error(folded_once: LedgerHandle) -> None:
    stop, met = threading.Event(), set()

    def read() -> None:
        with psycopg.connect(folded_once.url, autocommit=True) as conn:
            while not stop.is_set():
                row = conn.execute(MARKED).fetchone()
                assert row is not None
                met.add(row)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    while not met:
        time.sleep(0.01)
    try:
        for _ in range(3):
            rebuild(folded_once, batch=7)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert met == {OLD, NEW}


def test_a_reader_that_holds_a_view_delays_the_swap_and_nobody_else(folded_once: LedgerHandle) -> None:
    done: list[float] = []
    with psycopg.connect(folded_once.url) as holder:
        holder.execute("SELECT count(*) FROM rollout_view")
        swapping = threading.Thread(target=lambda: done.append(rebuild(folded_once).positions["rollouts"]))
        swapping.start()
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            began = time.monotonic()
            assert seen(folded_once) == OLD
            assert time.monotonic() - began < 1.0
        assert done == []
        holder.rollback()
        swapping.join(10)
    assert done == [21]
    assert seen(folded_once) == NEW


def test_an_old_table_that_is_still_read_is_left_and_dropped_by_the_next_run(folded_once: LedgerHandle) -> None:
    (old,) = tables(folded_once, "rewards")
    with psycopg.connect(folded_once.url) as holder:
        holder.execute(f"LOCK TABLE {old} IN ACCESS SHARE MODE")
        result = rebuild(folded_once)
        assert (result.dropped, result.left) == (len(MODELS) - 1, 1)
        assert old in tables(folded_once, "rewards")
    result = rebuild(folded_once, "groups")
    assert (result.dropped, result.left) == (2, 0)
    assert old not in tables(folded_once, "rewards")


def test_a_folder_that_waits_while_the_view_is_swapped_goes_on_with_what_is_shown_then(folded_once: LedgerHandle) -> None:
    model, done = MODELS["rewards"], list[dict[str, int]]()
    with folded_once.connection() as conn:
        building = generations.begin(conn, [model], again=True)
    History(folded_once).start("rollout-b", 1)
    goal = folded_once.barrier()
    with psycopg.connect(folded_once.url) as swapping:
        generations.show(swapping, building, goal - 1, 100)
        waiting = threading.Thread(target=lambda: done.append(catch_up(folded_once, "rewards")))
        waiting.start()
        while swapping.execute("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple')").fetchone() == (
            0,
        ):
            time.sleep(0.01)
        swapping.commit()
        waiting.join(20)
    assert done == [{"rewards": goal}]
    assert [(g.digest, g.shown) for g in stored(folded_once, "rewards")] == [(building[0].digest, True)]


def test_a_change_of_source_that_another_process_has_shown_is_not_folded_again(folded_once: LedgerHandle) -> None:
    with folded_once.connection() as conn:
        assert generations.begin(conn, list(MODELS.values()), again=False) == []


def test_grants_stay_when_the_columns_change(folded_once: LedgerHandle) -> None:
    age(folded_once, "rewards")
    with folded_once.connection() as conn:
        conn.execute("DROP VIEW reward_view")
        conn.execute("CREATE VIEW reward_view AS SELECT *, 1 AS extra FROM rewards_00000000")
        conn.execute("GRANT SELECT ON reward_view TO PUBLIC")
    catch_up(folded_once)
    with folded_once.connection() as conn:
        assert conn.execute("SELECT 'extra' = ANY (array_agg(attname)) FROM pg_attribute WHERE attrelid = 'reward_view'::regclass"
                            ).fetchone() == (False,)  # fmt: skip
        assert conn.execute("SELECT array_agg(grantee::int) @> '{0}' FROM pg_class, aclexplode(relacl) WHERE relname = 'reward_view'"
                            ).fetchone() == (True,)  # fmt: skip


def test_an_event_of_a_later_release_stops_the_fold_and_changes_nothing(folded_once: LedgerHandle) -> None:
    History(folded_once).start("rollout-b", 1)
    folded_once.barrier()
    with folded_once.connection() as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute("UPDATE event SET schema_version = 99 WHERE id = (SELECT id FROM event_order ORDER BY position DESC LIMIT 1)")
    before = positions(folded_once)
    with pytest.raises(UnknownEventKind, match="RolloutStarted has schema version 99; this release reads up to 1: upgrade it"):
        catch_up(folded_once)
    assert positions(folded_once) == before
    catch_up(folded_once, "rewards")
    with pytest.raises(UnknownEventKind):
        rebuild(folded_once)
    assert seen(folded_once) == OLD


WORK = """
import sys
from ledger.ledger import open_ledger
from ledger.projections import catch_up, rebuild
with open_ledger(sys.argv[1], project="test", actor_id="worker") as ledger:
    print("ready", flush=True)
    {"catch_up": catch_up, "rebuild": rebuild}[sys.argv[2]](ledger, batch=1)
"""


def killed(ledger: LedgerHandle, work: str, after_s: float) -> None:
    """Run one piece of work in a process of its own and kill it so long after its first commit."""
    before = cursors(ledger)
    with subprocess.Popen([sys.executable, "-c", WORK, ledger.url, work], stdout=subprocess.PIPE, env=os.environ, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        while process.poll() is None and cursors(ledger) == before:
            time.sleep(0.005)
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)


def cursors(ledger: LedgerHandle) -> list[tuple[tuple[str, str], int]]:
    return [(generation.key, generation.position) for name in MODELS for generation in stored(ledger, name)]


def long_history(ledger: LedgerHandle) -> int:
    history = History(ledger)
    history.task()
    for n in range(12):
        history.verdict(f"r{n}", f"early-{n}", n % 2 == 0)
        calls = [history.call(f"r{n}", index) for index in range(3)]
        history.start(f"r{n}", n)
        history.tool(f"r{n}", calls[0])
        history.end(f"r{n}", calls)
        history.verdict(f"r{n}", f"late-{n}", True)
        history.reward(f"r{n}", f"reward-{n}", f"late-{n}", 1.0)
    return ledger.barrier()


@pytest.mark.parametrize("work", ["live", "changed source", "rebuild"])
def test_rows_and_cursor_are_in_step_after_any_kill_and_the_work_goes_on(ledger: LedgerHandle, work: str) -> None:
    goal, draw = long_history(ledger), random.Random(work)
    events, reached = ledger.read(limit=10_000), [0]
    if work != "live":
        catch_up(ledger)
        before = {name: shown(ledger, name) for name in MODELS}
    if work == "changed source":
        for name in MODELS:
            age(ledger, name)
    for _ in range(4):
        killed(ledger, "rebuild" if work == "rebuild" else "catch_up", draw.uniform(0.0, 0.15))
        there = [(model, generation) for name, model in MODELS.items() for generation in stored(ledger, name)]
        for model, generation in there:
            known = lines(folded(model, [e for e in events if (e.position or 0) <= generation.position]))
            assert rows_of(ledger, generation.table, model.SHOWN) == known
        if work != "live":
            assert {name: shown(ledger, name) for name in MODELS} == before
        reached.append(min((g.position for _, g in there if work == "live" or not g.shown), default=goal))
    assert reached == sorted(reached) and max(reached) > 0
    if work == "live":
        catch_up(ledger)
        before = {name: shown(ledger, name) for name in MODELS}
    rebuild(ledger)
    assert {name: shown(ledger, name) for name in MODELS} == before
    assert {name: table(ledger, name) for name in MODELS} == {name: lines(folded(MODELS[name], events)) for name in MODELS}
    assert all([g.current and g.shown for g in stored(ledger, name)] == [True] for name in MODELS)


def rows_of(ledger: LedgerHandle, table: str, condition: str) -> bytes:
    with ledger.connection() as conn:
        conn.execute(f"CREATE VIEW looked_at AS SELECT * FROM {table} WHERE {condition}")
        rows = conn.execute("SELECT to_jsonb(v) FROM looked_at AS v").fetchall()
        conn.execute("DROP VIEW looked_at")
    return lines([{**row, "value": None if row["value"] is None else float(row["value"])} if "value" in row else row for (row,) in rows])


def test_several_processes_fold_at_once_and_count_nothing_twice(ledger: LedgerHandle) -> None:
    long_history(ledger)
    workers = [
        subprocess.Popen([sys.executable, "-c", WORK, ledger.url, work], stdout=subprocess.PIPE, env=os.environ)
        for work in ("catch_up", "catch_up", "rebuild")
    ]
    for worker in workers:
        worker.communicate()
        assert worker.returncode == 0
    events = ledger.read(limit=10_000)
    assert {name: table(ledger, name) for name in MODELS} == {name: lines(folded(MODELS[name], events)) for name in MODELS}
    assert copied(ledger, "SELECT name FROM projection_cursor ORDER BY 1") == b"".join(f"{name}\n".encode() for name in sorted(MODELS))
