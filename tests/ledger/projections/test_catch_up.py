"""Cursors: rows and cursor commit together, several folders at once count nothing twice, a changed source folds again."""

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from ledger.errors import UnknownId, WaitTimeout
from ledger.ledger import LedgerHandle
from ledger.projections import MODELS, catch_up, positions, wait_projected
from tests.ledger.projections.histories import age, stored, tables


def counts(ledger: LedgerHandle) -> list[tuple[Any, ...]]:
    with ledger.connection() as conn:
        return conn.execute("SELECT rollout_id, model_calls, tool_calls, sampled_tokens FROM rollout_view ORDER BY 1").fetchall()


def test_every_cursor_reaches_what_is_ordered_and_no_further(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    assert positions(ledger) == dict.fromkeys(MODELS, 0)
    assert catch_up(ledger) == dict.fromkeys(MODELS, 0)
    sealed(ledger)
    ordered = ledger.barrier()
    assert catch_up(ledger, batch=4) == positions(ledger) == dict.fromkeys(MODELS, ordered)
    assert catch_up(ledger) == dict.fromkeys(MODELS, ordered)


def test_folders_at_the_same_time_count_nothing_twice(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(ledger)
    ledger.barrier()
    threads = [threading.Thread(target=catch_up, args=(ledger, "rollouts"), kwargs={"batch": 2}) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts(ledger) == [("rollout-a", 2, 1, 6)]


def test_rows_and_cursor_are_given_up_together(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(ledger)
    ledger.barrier()
    (table,) = tables(ledger, "rollouts")
    with psycopg.connect(ledger.url) as conn:
        conn.execute(f"ALTER TABLE {table} ADD CHECK (model_calls < 2)")
    with pytest.raises(psycopg.errors.CheckViolation):
        catch_up(ledger, "rollouts")
    assert (counts(ledger), positions(ledger)["rollouts"]) == ([], 0)
    with psycopg.connect(ledger.url) as conn:
        conn.execute(f"ALTER TABLE {table} DROP CONSTRAINT {table}_model_calls_check")
    catch_up(ledger, "rollouts")
    assert counts(ledger) == [("rollout-a", 2, 1, 6)]


def test_a_changed_source_folds_again_from_the_start(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(ledger)
    ledger.barrier()
    catch_up(ledger)
    with psycopg.connect(ledger.url) as conn:
        conn.execute("UPDATE rollout_view SET model_calls = 99")
    catch_up(ledger)
    assert counts(ledger)[0][1] == 99
    age(ledger, "rollouts")
    assert counts(ledger)[0][1] == 99
    catch_up(ledger)
    assert counts(ledger) == [("rollout-a", 2, 1, 6)]
    assert [g.table for g in stored(ledger, "rollouts")] == tables(ledger, "rollouts")


def test_a_wait_helps_to_order_and_to_fold_or_says_how_far_it_is(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(ledger)
    assert wait_projected(ledger, "rewards", 21) == 21
    with pytest.raises(WaitTimeout, match="'rewards' is at position 21 after 0.05 s; wanted 10000"):
        wait_projected(ledger, "rewards", 10_000, timeout_s=0.05)


def test_an_unknown_read_model_is_named(ledger: LedgerHandle) -> None:
    with pytest.raises(UnknownId, match="no read model 'fish'; there are bundles, groups"):
        catch_up(ledger, "fish")


def test_what_was_ordered_before_its_rollouts_start_is_counted_too(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.call("late")
    history.verdict("late", "v0", True)
    ledger.barrier()
    catch_up(ledger)
    history.start("late")
    history.end("late", [])
    ledger.barrier()
    catch_up(ledger)
    with ledger.connection() as conn:
        row = conn.execute("SELECT model_calls, sampled_tokens, verdict_id, outcome FROM rollout_view").fetchone()
    assert row == (1, 3, "v0", "succeeded")
