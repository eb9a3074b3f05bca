"""Whatever goes wrong is recorded as what it is, said clearly, and never acknowledged before it is durable."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import psycopg
import pytest

from training.rollout.gateway import Upstream
from training.rollout.gateway_rollouts import dangling_intents
from training.rollout.scripted import Fault

from .conftest import ASK, Rig, end_rollout

Make = Callable[..., Awaitable[Rig]]


async def test_an_upstreams_error_passes_through_and_is_recorded(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    body = b'{"error": {"message": "too long", "param": "input_tokens", "code": 400}}'
    rig.server.fault(rollout_id, Fault(status=400, body=body))
    reply = await rig.chat(rollout_id)
    assert (reply.status, reply.raw) == (400, body)
    assert reply.headers["X-Tally-Error-Source"] == "engine"
    (called,) = rig.called(rollout_id)
    assert (called.status, called.http_status, called.error_source) == ("upstream_error", 400, "engine")
    assert called.error is not None
    assert rig.ledger.blob(called.error.blob_id) == body


async def test_an_upstreams_retry_after_reaches_the_client(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    rig.server.fault(rollout_id, Fault(status=429, headers={"Retry-After": "7"}))
    assert (await rig.chat(rollout_id, stream=True)).headers["Retry-After"] == "7"


@pytest.mark.parametrize(("kind", "source"), [("vllm", "engine"), ("openai", "provider")])
async def test_a_dead_upstream_is_tried_again_and_then_named(rig: Rig, kind: Any, source: str) -> None:
    rollout_id = rig.start_rollout(register=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        rig.gateway.register(rollout_id, Upstream(address, "m", kind, logprobs_mode="raw_logprobs"))
        reply = await rig.chat(rollout_id)
    assert (reply.status, reply.error_type, reply.json["error"]["source"]) == (502, "upstream_unreachable", source)
    assert reply.headers["X-Tally-Attempts"] == "3"
    (called,) = rig.called(rollout_id)
    assert (called.status, called.error_source, called.attempts, called.http_status) == ("upstream_error", source, 3, None)


async def test_a_connection_that_breaks_after_the_request_was_sent_is_not_tried_again(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    rig.server.fault(rollout_id, Fault(break_after=0))
    reply = await rig.chat(rollout_id)
    assert (reply.status, reply.headers["X-Tally-Attempts"]) == (502, "1")
    assert rig.server.requests == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_an_upstream_that_takes_too_long_is_a_timeout(rig: Rig, stream: bool) -> None:
    rollout_id = rig.start_rollout(register=False)
    rig.gateway.register(rollout_id, rig.server.upstream("model-1", timeout_s=0.2))
    rig.server.fault(rollout_id, Fault(gate=asyncio.Event()))
    reply = await rig.chat(rollout_id, stream=stream)
    assert (reply.status, reply.error_type) == (504, "timeout")
    assert rig.called(rollout_id)[0].status == "timeout"


@pytest.mark.parametrize("fault", [Fault(break_after=3), Fault(error_after=3)])
async def test_a_stream_that_breaks_ends_with_an_error_and_without_done(rig: Rig, fault: Fault) -> None:
    rollout_id = rig.start_rollout()
    fault.times = 1
    rig.server.fault(rollout_id, fault)
    reply = await rig.chat(rollout_id, stream=True)
    assert reply.status == 200
    assert "error" in reply.events[-1]
    assert "[DONE]" not in reply.events
    (called,) = rig.called(rollout_id)
    assert (called.status, called.error_source, called.stream_complete) == ("upstream_error", "engine", False)
    assert called.sampled_ids is not None
    assert called.sampled_ids.count == 8
    assert called.version_spans[0].end == 8


async def test_a_client_that_leaves_in_mid_stream_stops_the_upstream_and_what_came_is_recorded(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    rig.server.fault(rollout_id, Fault(chunk_gate=asyncio.Event()))
    body = json.dumps({"model": "tiny", "messages": ASK, "stream": True}).encode()
    async with rig.http.post(f"{rig.gateway.base_url(rollout_id)}/chat/completions", data=body) as response:
        async for line in response.content:
            if b"ist " in line:
                break
    (called,) = await rig.until(lambda: rig.called(rollout_id))
    assert (called.status, called.error_source, called.stream_complete) == ("client_aborted", "client", False)
    assert called.sampled_ids is not None
    assert called.sampled_ids.count >= 4
    await rig.until(lambda: rig.server.aborted == 1)
    await rig.until(lambda: rig.gateway.state()["inflight"] == 0)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"model": "tiny", "messages": [{"role": "user"}], "temperature": NaN}', "NaN"),
        (b'{"model": "tiny", "messages": [{"role": "user"}], "temperature": 1e999}', "inf"),
        (b'{"model": "tiny", "model": "x", "messages": [{"role": "user"}]}', "duplicate key 'model'"),
        (b"[1]", "a JSON object"),
        (b"", "not JSON"),
        (b"\xff\xfe", "UTF-8"),
        (b'{"model": 3, "messages": [{"role": "user"}]}', "int 3"),
        (b'{"model": "a\\u0000b", "messages": [{"role": "user"}]}', "printable"),
        (b'{"model": "tiny", "messages": []}', "at least one message"),
        (b'{"model": "tiny", "messages": ["hi"]}', "messages[0]"),
        (b'{"model": "tiny", "messages": [{"role": "user"}], "n": 2}', "allowed: 1"),
        (b'{"model": "tiny", "messages": [{"role": "user"}], "stream": "yes"}', "true, false or null"),
        (b'{"model": "tiny", "messages": [{"role": "user"}], "temperature": "hot"}', "finite number"),
        (b'{"model": "tiny", "messages": [{"role": "user"}], "tools": {}}', "a list"),
        (b'{"model": "tiny", "messages": ' + b"[" * 100_000, "not JSON"),
    ],
)
async def test_a_malformed_request_is_refused_with_what_was_seen_and_leaves_no_intent(rig: Rig, body: bytes, said: str) -> None:
    rollout_id = rig.start_rollout()
    reply = await rig.post(rig.gateway.base_url(rollout_id), body)
    assert (reply.status, reply.error_type) == (400, "invalid_request")
    assert said in reply.json["error"]["message"]
    assert rig.intents(rollout_id) == []
    assert rig.server.requests == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Tally-Role": "boss"},
        {"X-Tally-Correlation-Id": "a b"},
        {"X-Tally-Wait": "nan"},
        {"x-stainless-retry-count": "-1"},
        {"Idempotency-Key": ""},
    ],
)
async def test_a_malformed_header_is_refused(rig: Rig, headers: dict[str, str]) -> None:
    reply = await rig.chat(rig.start_rollout(), headers=headers)
    assert (reply.status, reply.error_type) == (400, "invalid_request")
    assert next(iter(headers)) in reply.json["error"]["message"]


async def test_a_body_beyond_the_limit_is_refused(make_rig: Make) -> None:
    rig = await make_rig(max_body_bytes=1000)
    reply = await rig.chat(rig.start_rollout(), user="x" * 2000)
    assert (reply.status, reply.error_type) == (413, "too_large")


async def test_what_is_not_known_is_named_beside_what_is(rig: Rig) -> None:
    for name in ("nobody", "\x00", "x" * 300):
        unknown = await rig.chat(name)
        assert (unknown.status, unknown.error_type) == (404, "unknown_rollout")
    model = await rig.chat(rig.start_rollout(register=False), model="huge")
    assert (model.status, model.error_type) == (404, "unknown_model")
    assert "tiny" in model.json["error"]["message"]
    route = await rig.chat(None, base=f"{rig.gateway.url}/v2")
    assert (route.status, route.error_type) == (404, "unknown_route")
    assert "/r/{rollout_id}/v1" in route.json["error"]["message"]


async def test_a_rollout_that_has_ended_takes_no_more_calls(rig: Rig) -> None:
    closed, ended = rig.start_rollout(), rig.start_rollout()
    assert (await rig.chat(closed)).status == 200
    assert len(rig.gateway.close_rollout(closed).call_ids) == 1
    end_rollout(rig.ledger, ended)
    for rollout_id in (closed, ended):
        reply = await rig.chat(rollout_id)
        assert (reply.status, reply.error_type) == (409, "rollout_closed")
    await rig.restart()
    assert (await rig.chat(ended)).status == 409


async def test_ending_a_rollout_cuts_off_a_call_whose_client_has_left(make_rig: Make) -> None:
    rig = await make_rig(abandoned_s=600.0)
    rollout_id = rig.start_rollout()
    rig.server.fault(rollout_id, Fault(gate=asyncio.Event()))
    left = asyncio.create_task(rig.chat(rollout_id))
    await rig.until(lambda: rig.server.requests == 1)
    left.cancel()
    await rig.until(lambda: all(call.entry.listeners == 0 for call in rig.gateway._calls.values()))
    rig.gateway.close_rollout(rollout_id)
    (called,) = await rig.until(lambda: rig.called(rollout_id))
    assert called.status == "client_aborted"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_comes_after_the_end_is_kept_and_not_given_out(rig: Rig, stream: bool) -> None:
    rollout_id = rig.start_rollout()
    gate = asyncio.Event()
    rig.server.fault(rollout_id, Fault(gate=gate))
    late = asyncio.create_task(rig.chat(rollout_id, stream=stream))
    await rig.until(lambda: rig.server.requests == 1)
    calls = rig.gateway.close_rollout(rollout_id)
    assert (len(calls.call_ids), calls.in_flight) == (1, 1)
    end_rollout(rig.ledger, rollout_id)
    gate.set()
    reply = await late
    if stream:
        assert reply.events[-1]["error"]["type"] == "rollout_closed"
    else:
        assert (reply.status, reply.error_type) == (409, "rollout_closed")
    assert [c.status for c in rig.called(rollout_id)] == ["completed"]


async def test_pausing_waits_for_calls_in_flight_and_turns_new_ones_away(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    gate = asyncio.Event()
    rig.server.fault(rollout_id, Fault(gate=gate))
    running = asyncio.create_task(rig.chat(rollout_id))
    await rig.until(lambda: rig.server.requests == 1)
    pausing = asyncio.create_task(rig.control("POST", "/control/pause", reason="refresh", retry_after_s=3))
    await rig.until(lambda: rig.gateway.state()["paused"])
    refused = await rig.chat(rollout_id)
    assert (refused.status, refused.headers["Retry-After"], refused.headers["X-Tally-Paused"]) == (429, "3", "true")
    waiting = asyncio.create_task(rig.chat(rollout_id, headers={"X-Tally-Wait": "30"}))
    await rig.until(lambda: rig.gateway.state()["waiting"] == 1)
    assert not pausing.done()
    gate.set()
    assert (await pausing)["drain_s"] > 0
    assert (await running).status == 200
    state = await rig.control("GET", "/control/state")
    assert (state["paused"], state["inflight"], state["waiting"]) == (True, 0, 1)
    rig.gateway.register(rollout_id, rig.server.upstream("model-2"))
    await rig.control("POST", "/control/resume")
    assert (await waiting).status == 200
    assert [c.version_spans[0].model_version for c in rig.called(rollout_id)] == ["model-1", "model-2"]
    assert rig.called(rollout_id)[1].queued_s > 0


async def test_the_end_of_a_stream_waits_for_the_commit(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    reached = asyncio.Event()
    rig.server.fault(rollout_id, Fault(chunk_gate=reached))
    body = json.dumps({"model": "tiny", "messages": ASK, "stream": True}).encode()
    async with rig.http.post(f"{rig.gateway.base_url(rollout_id)}/chat/completions", data=body) as response:
        received = bytearray()

        async def collect() -> None:
            async for part in response.content.iter_any():
                received.extend(part)

        collecting = asyncio.create_task(collect())
        await rig.until(lambda: b"ist " in received)
        with psycopg.connect(rig.ledger.url) as blocker:
            blocker.execute("SELECT FROM stream_head JOIN node USING (node_id) WHERE name = %s FOR UPDATE", (f"rollout-{rollout_id}",))
            reached.set()
            await rig.until(lambda: b"them" in received)
            await asyncio.sleep(0.5)
            assert b'"finish_reason":"' not in received
            assert b"DONE" not in received
            assert rig.called(rollout_id) == []
        await collecting
    assert b'"finish_reason":"tool_calls"' in received
    assert received.endswith(b"data: [DONE]\n\n")
    assert [called.status for called in rig.called(rollout_id)] == ["completed"]


async def test_nothing_is_acknowledged_while_the_ledger_cannot_be_written(make_rig: Make) -> None:
    rig = await make_rig(ledger_timeout_s=0.3)
    rollout_id = rig.start_rollout()
    with psycopg.connect(rig.ledger.url) as blocker:
        blocker.execute("SELECT FROM stream_head JOIN node USING (node_id) WHERE name = %s FOR UPDATE", (f"rollout-{rollout_id}",))
        reply = await rig.chat(rollout_id)
        assert (reply.status, reply.error_type) == (503, "ledger_unavailable")
        assert rig.server.requests == 0
    await rig.until(lambda: rig.intents(rollout_id))
    good = await rig.chat(rollout_id, headers={"x-stainless-retry-count": "1"})
    assert good.status == 200
    first, second = rig.intents(rollout_id)
    assert second.retry_of == first.call_id


async def test_an_answer_whose_record_came_late_is_replayed_to_the_retry(make_rig: Make) -> None:
    rig = await make_rig(ledger_timeout_s=0.3)
    rollout_id = rig.start_rollout()
    gate = asyncio.Event()
    rig.server.fault(rollout_id, Fault(gate=gate))
    asking = asyncio.create_task(rig.chat(rollout_id))
    await rig.until(lambda: rig.server.requests == 1)
    with psycopg.connect(rig.ledger.url) as blocker:
        blocker.execute("SELECT FROM stream_head JOIN node USING (node_id) WHERE name = %s FOR UPDATE", (f"rollout-{rollout_id}",))
        gate.set()
        assert (await asking).status == 503
    await rig.until(lambda: rig.called(rollout_id))
    again = await rig.chat(rollout_id, headers={"x-stainless-retry-count": "1"})
    assert (again.status, again.headers["X-Tally-Replayed"]) == (200, "true")
    assert rig.server.requests == 1


async def test_a_killed_gateway_has_every_acknowledged_call_in_the_ledger_and_leaves_the_open_one_as_an_intent(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    upstream = f"model=tiny,url={rig.server.base_url},version=model-1,logprobs_mode=processed_logprobs"
    environment = {**os.environ, "TALLY_DATABASE_URL": rig.ledger.url, "TALLY_PROJECT": rig.ledger.project}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "training.rollout.gateway", "--port", "0", "--upstream", upstream,
        env=environment, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        base = f"{line.decode().split()[-1]}/r/{rollout_id}/v1"
        replies = await asyncio.gather(*(rig.chat(None, base=base, seed=n) for n in range(40)))
        rig.server.fault(rollout_id, Fault(gate=asyncio.Event()))
        opened = asyncio.create_task(rig.chat(None, base=base, seed=99))
        await rig.until(lambda: rig.server.requests == 41)
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await opened
    assert {reply.status for reply in replies} == {200}
    recorded = {called.call_id for called in rig.called(rollout_id)}
    assert recorded == {reply.headers["X-Tally-Call-Id"] for reply in replies}
    (dangling,) = dangling_intents(rig.ledger)
    assert dangling.call_id not in recorded

    retried = await rig.chat(rollout_id, seed=99, headers={"x-stainless-retry-count": "1"})
    assert retried.status == 200
    last = rig.intents(rollout_id)[-1]
    assert (last.retry_of, last.index) == (dangling.call_id, 41)
    replayed = await rig.chat(rollout_id, seed=0, headers={"x-stainless-retry-count": "1"})
    assert replayed.headers["X-Tally-Call-Id"] == replies[0].headers["X-Tally-Call-Id"]


async def test_the_controls_can_be_kept_from_policies_by_a_token(rig: Rig) -> None:
    rig.gateway.control_token = "s3cret"
    async with rig.http.post(f"{rig.gateway.url}/control/pause") as response:
        assert response.status == 401
    async with rig.http.get(f"{rig.gateway.url}/control/state", headers={"Authorization": "Bearer s3cret"}) as response:
        assert (await response.json())["paused"] is False
    async with rig.http.get(f"{rig.gateway.url}/healthz") as response:
        assert response.status == 200
