"""Packing while a collection runs: many rollouts together, all of them in the end, and nothing lost where it breaks off."""

import asyncio

import psycopg
import pytest

from ledger.ledger import LedgerHandle
from ledger.token_packing import pack_ended
from tests.ledger.test_token_packing import counts, write_calls
from training.rollout.packing import PackingEnded


async def test_ended_rollouts_are_packed_in_full_groups_and_the_others_at_the_end(ledger: LedgerHandle) -> None:
    made = {f"r{n}": write_calls(ledger, f"r{n}", 2) for n in range(7)}
    with psycopg.connect(ledger.url) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute("UPDATE token_live SET prompt = prompt || 'x' WHERE event_id = %s", (made["r1"][0][0],))
    async with PackingEnded(ledger, at_once=3) as packing:
        for name in list(made)[:2]:
            packing.ended(name)
        await asyncio.sleep(0.2)
        assert counts(ledger) == (14, 0)
        for name in list(made)[2:]:
            packing.ended(name)
        for _ in range(600):
            if counts(ledger) == (4, 5):
                break
            await asyncio.sleep(0.1)
        # Six rollouts are two full groups; one of them has a call that does not fit its event.
        assert (counts(ledger), packing.unpacked) == ((4, 5), ["r1"])
    assert (counts(ledger), packing.unpacked) == ((2, 6), ["r1"])


async def test_what_has_ended_is_packed_when_the_collection_breaks_off(ledger: LedgerHandle) -> None:
    write_calls(ledger, "r0", 2)
    with pytest.raises(RuntimeError):
        async with PackingEnded(ledger) as packing:
            packing.ended("r0")
            raise RuntimeError
    assert counts(ledger) == (0, 1)


async def test_what_a_killed_collection_left_is_packed_afterwards(ledger: LedgerHandle) -> None:
    write_calls(ledger, "r0", 2)
    packing = await PackingEnded(ledger).__aenter__()
    packing.ended("r0")
    assert counts(ledger) == (2, 0)
    assert pack_ended(ledger).packs == 1
    await packing.__aexit__(None, None, None)
    assert (counts(ledger), packing.unpacked) == ((0, 1), [])
