"""A client's retry is answered from the record or joins the call in flight; a new request with the same words is a new call."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from training.rollout.gateway_rollouts import KEPT_CALLS, dangling_intents
from training.rollout.scripted import Fault

from .conftest import Reply, Rig

RETRY = {"x-stainless-retry-count": "1"}
Make = Callable[..., Awaitable[Rig]]


async def test_the_same_words_without_a_retry_mark_are_a_new_call(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    first, second = await rig.chat(rollout_id), await rig.chat(rollout_id)
    assert first.headers["X-Tally-Call-Id"] != second.headers["X-Tally-Call-Id"]
    assert rig.server.requests == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_retry_of_an_answered_call_is_replayed_even_after_a_restart(rig: Rig, stream: bool, restarted: bool) -> None:
    rollout_id = rig.start_rollout()
    first = await rig.chat(rollout_id, stream=stream)
    if restarted:
        await rig.restart()
    again = await rig.chat(rollout_id, stream=stream, headers=RETRY)
    assert again.headers["X-Tally-Replayed"] == "true"
    assert again.headers["X-Tally-Call-Id"] == first.headers["X-Tally-Call-Id"]
    assert rig.server.requests == 1
    assert len(rig.intents(rollout_id)) == 1
    assert _message(again, stream) == _message(first, stream)
    assert rig.gateway.state()["replayed"] == 1


def _message(reply: Reply, stream: bool) -> tuple[str, list[str], str]:
    if not stream:
        message = reply.json["choices"][0]["message"]
        calls = [call["function"]["name"] + call["function"]["arguments"] for call in message["tool_calls"]]
        return message["content"], calls, reply.json["choices"][0]["finish_reason"]
    *chunks, done = reply.events
    assert done == "[DONE]"
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    calls = [c["function"]["name"] + c["function"]["arguments"] for d in deltas for c in d.get("tool_calls", [])]
    return "".join(d.get("content") or "" for d in deltas), calls, chunks[-1]["choices"][0]["finish_reason"]


async def test_a_retry_joins_the_call_in_flight(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    gate = asyncio.Event()
    rig.server.fault(rollout_id, Fault(gate=gate))
    first = asyncio.create_task(rig.chat(rollout_id))
    await rig.until(lambda: rig.server.requests == 1)
    second = asyncio.create_task(rig.chat(rollout_id, headers=RETRY))
    await rig.until(lambda: rig.gateway.state()["coalesced"] == 1)
    gate.set()
    one, two = await asyncio.gather(first, second)
    assert one.raw == two.raw
    assert rig.server.requests == 1
    assert len(rig.called(rollout_id)) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_gave_up_finds_its_call_again_when_it_retries(rig: Rig, stream: bool) -> None:
    rollout_id = rig.start_rollout()
    gate = asyncio.Event()
    rig.server.fault(rollout_id, Fault(gate=gate))
    first = asyncio.create_task(rig.chat(rollout_id, stream=stream))
    await rig.until(lambda: rig.server.requests == 1)
    first.cancel()
    second = asyncio.create_task(rig.chat(rollout_id, stream=stream, headers=RETRY))
    await rig.until(lambda: rig.gateway.state()["coalesced"] == 1)
    await asyncio.sleep(2 * rig.gateway.limits.abandoned_s)
    gate.set()
    assert (await second).status == 200
    assert [c.status for c in rig.called(rollout_id)] == ["completed"]
    assert rig.server.requests == 1


async def test_an_abandoned_call_that_nobody_asks_for_again_is_cut_off_and_recorded(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    rig.server.fault(rollout_id, Fault(gate=asyncio.Event()))
    first = asyncio.create_task(rig.chat(rollout_id))
    await rig.until(lambda: rig.server.requests == 1)
    first.cancel()
    (called,) = await rig.until(lambda: rig.called(rollout_id))
    assert (called.status, called.error_source, called.sampled_ids) == ("client_aborted", "client", None)
    await rig.until(lambda: rig.server.aborted == 1)


async def test_a_retry_of_a_failed_call_is_a_new_call_that_names_it(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    rig.server.fault(rollout_id, Fault(status=500))
    failed = await rig.chat(rollout_id)
    good = await rig.chat(rollout_id, headers=RETRY)
    assert (failed.status, good.status) == (500, 200)
    first, second = rig.intents(rollout_id)
    assert second.retry_of == first.call_id


async def test_a_retry_after_a_failure_does_not_take_a_twins_answer(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    rig.server.fault(rollout_id, Fault(status=500))
    await rig.chat(rollout_id)
    twin = await rig.chat(rollout_id)
    mine = await rig.chat(rollout_id, headers=RETRY)
    assert mine.headers["X-Tally-Call-Id"] != twin.headers["X-Tally-Call-Id"]
    assert "X-Tally-Replayed" not in mine.headers


async def test_a_request_turned_away_while_paused_is_a_new_call_when_it_comes_again(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    await rig.chat(rollout_id)
    await rig.gateway.pause("refresh")
    assert (await rig.chat(rollout_id)).status == 429
    rig.gateway.resume()
    assert "X-Tally-Replayed" not in (await rig.chat(rollout_id, headers=RETRY)).headers
    assert len(rig.intents(rollout_id)) == 2


@pytest.mark.parametrize("restarted", [False, True])
async def test_an_idempotency_key_names_one_call_whatever_else_is_asked(rig: Rig, restarted: bool) -> None:
    rollout_id = rig.start_rollout()
    first = await rig.chat(rollout_id, headers={"Idempotency-Key": "a"})
    other = await rig.chat(rollout_id, headers={"Idempotency-Key": "b"})
    if restarted:
        await rig.restart()
    again = await rig.chat(rollout_id, headers={"Idempotency-Key": "a"})
    assert again.headers["X-Tally-Call-Id"] == first.headers["X-Tally-Call-Id"] != other.headers["X-Tally-Call-Id"]
    assert rig.server.requests == 2


async def test_an_idempotency_key_with_another_request_is_refused(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    await rig.chat(rollout_id, headers={"Idempotency-Key": "a"})
    reply = await rig.chat(rollout_id, seed=2, headers={"Idempotency-Key": "a"})
    assert (reply.status, reply.error_type) == (422, "idempotency_conflict")
    assert len(rig.intents(rollout_id)) == 1


async def test_a_call_that_the_gateway_no_longer_remembers_is_replayed_from_the_ledger(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    first = await rig.chat(rollout_id, seed=-1)
    for start in range(0, KEPT_CALLS + 1, 64):
        await asyncio.gather(*(rig.chat(rollout_id, seed=start + n) for n in range(64)))
    entry = rig.gateway._rollouts.known(rollout_id)
    assert entry is not None
    assert first.headers["X-Tally-Call-Id"] not in entry.recent
    sent = rig.server.requests
    again = await rig.chat(rollout_id, seed=-1, headers=RETRY)
    assert again.headers["X-Tally-Call-Id"] == first.headers["X-Tally-Call-Id"]
    assert rig.server.requests == sent


async def test_stopping_the_gateway_records_what_it_cuts_off(make_rig: Make) -> None:
    rig = await make_rig(drain_s=0.05)
    rollout_id = rig.start_rollout()
    rig.server.fault(rollout_id, Fault(gate=asyncio.Event()))
    waiting = asyncio.create_task(rig.chat(rollout_id))
    await rig.until(lambda: rig.server.requests == 1)
    await rig.gateway.stop()
    assert (await waiting).error_type == "interrupted"
    (called,) = rig.called(rollout_id)
    assert (called.status, called.error_source) == ("interrupted", "gateway")
    assert dangling_intents(rig.ledger) == []
