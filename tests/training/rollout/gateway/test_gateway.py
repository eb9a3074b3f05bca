"""The gateway records what was really sampled before it answers, and tells a client what it asked for and no more."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from training.rollout.gateway import Upstream
from training.rollout.gateway_rollouts import dangling_intents, unattributed_calls
from training.rollout.scripted import STOP_TOKEN, Fault
from training.worlds import AssistantTurn

from .conftest import ASK, Rig


async def test_a_call_is_recorded_with_its_real_tokens_and_the_client_sees_only_what_it_asked_for(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    reply = await rig.chat(rollout_id, temperature=0.5, seed=7)
    assert reply.status == 200
    choice = reply.json["choices"][0]
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "query_tickets", "arguments": '{"priority": "P1"}'}
    assert "prompt_token_ids" not in reply.json
    assert "token_ids" not in choice
    assert choice["logprobs"] is None

    (intent,), (called,) = rig.intents(rollout_id), rig.called(rollout_id)
    assert reply.headers["X-Tally-Call-Id"] == intent.call_id == called.call_id
    assert intent.added_fields == ["return_token_ids", "logprobs", "top_logprobs"]
    text = 'To list them.query_tickets{"priority": "P1"}'
    (held,) = rig.tokens(rollout_id)
    assert held.prompt is not None and held.sampled is not None and held.logprobs is not None
    assert held.sampled.tolist() == [*text.encode(), STOP_TOKEN]
    assert bytes(held.prompt.astype(np.uint8)) == json.dumps(ASK, separators=(",", ":")).encode()
    assert len(held.logprobs) == len(text) + 1
    assert called.logprobs_mode == "processed_logprobs"
    assert called.status == "completed"
    assert called.finish_reason == "tool_calls"
    assert [(s.model_version, s.start, s.end) for s in called.version_spans] == [("model-1", 0, len(text) + 1)]
    assert called.sampling["temperature"] == 0.5
    assert called.sampling["seed"] == 7
    assert called.usage["completion_tokens"] == len(text) + 1


async def test_the_request_reaches_the_upstream_byte_for_byte_with_the_additions_at_its_end(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    odd = b'{"model": "tiny",  "messages": [{"role":"user","content":"nul \\u0000 and half \\ud800"}], "seed": 9007199254740999, "x": 1.50}'
    reply = await rig.post(rig.gateway.base_url(rollout_id), odd)
    assert reply.status == 200, reply.raw
    received = rig.server.received[-1]
    assert received.body.startswith(odd[:-1])
    assert received.headers["X-Tally-Rollout-Id"] == rollout_id
    (intent,) = rig.intents(rollout_id)
    assert rig.ledger.blob(intent.request.blob_id) == odd
    assert rig.called(rollout_id)[0].sampling["seed"] == "9007199254740999"


@pytest.mark.parametrize("stream", [False, True])
async def test_what_no_encoding_of_text_allows_is_kept_as_the_model_sampled_it(
    make_rig: Callable[..., Awaitable[Rig]], stream: bool
) -> None:
    rig = await make_rig(token_mode=False)
    rollout_id = rig.start_rollout()
    rig.server.script(rollout_id, [AssistantTurn("a\x00b\ud800c")])
    reply = await rig.chat(rollout_id, stream=stream)
    if stream:
        assert "".join(c["choices"][0]["delta"].get("content") or "" for c in reply.events[:-1]) == "a\x00b\ud800c"
    else:
        assert reply.json["choices"][0]["message"]["content"] == "a\x00b\ud800c"
    (called,) = rig.called(rollout_id)
    assert called.response is not None
    assert json.loads(rig.ledger.blob(called.response.blob_id))["choices"][0]["message"]["content"] == "a\x00b\ud800c"


async def test_a_field_that_the_client_set_itself_is_neither_added_nor_taken_away(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    reply = await rig.chat(rollout_id, logprobs=True, top_logprobs=0, return_token_ids=True)
    assert rig.intents(rollout_id)[0].added_fields == []
    assert len(reply.json["choices"][0]["token_ids"]) == len(reply.json["choices"][0]["logprobs"]["content"])


async def test_a_stream_gives_the_client_the_same_answer_and_the_ledger_the_same_tokens(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    plain = await rig.chat(rollout_id)
    streamed = await rig.chat(rollout_id, stream=True)
    *chunks, done = streamed.events
    assert done == "[DONE]"
    deltas = [c["choices"][0]["delta"] for c in chunks]
    assert "".join(d.get("content") or "" for d in deltas) == "To list them."
    assert [d["tool_calls"][0]["function"]["name"] for d in deltas if "tool_calls" in d] == ["query_tickets"]
    assert all("token_ids" not in c["choices"][0] and not c["choices"][0].get("logprobs") and "usage" not in c for c in chunks)
    assert all("prompt_token_ids" not in c for c in chunks)
    first, second = rig.called(rollout_id)
    for name in ("prompt_ids", "sampled_ids", "logprobs"):
        assert getattr(first, name).commitment == getattr(second, name).commitment, name
    assert second.stream_complete is True
    assert second.response is not None
    message = json.loads(rig.ledger.blob(second.response.blob_id))["choices"][0]["message"]
    assert message["tool_calls"] == plain.json["choices"][0]["message"]["tool_calls"]


async def test_usage_ends_a_stream_only_for_a_client_that_asked_for_it(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    reply = await rig.chat(rollout_id, stream=True, stream_options={"include_usage": True})
    assert reply.events[-2]["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault(extra_ids=1), "token_ids has"),
        (Fault(nan_logprob=True), "NaN"),
        (Fault(drop=("logprobs",)), "logprobs.content is missing"),
        (Fault(drop=("token_ids",)), "token_ids is missing"),
        (Fault(drop=("prompt_token_ids",)), "prompt_token_ids is missing"),
        (Fault(drop=("usage",)), "usage.prompt_tokens says None"),
    ],
)
async def test_an_answer_that_contradicts_itself_is_refused_and_recorded_as_that(rig: Rig, fault: Fault, said: str, stream: bool) -> None:
    rollout_id = rig.start_rollout()
    fault.times = 1
    rig.server.fault(rollout_id, fault)
    reply = await rig.chat(rollout_id, stream=stream)
    if stream:
        assert reply.events[-1]["error"]["type"] == "capture_mismatch"
        assert said in reply.events[-1]["error"]["message"]
    else:
        assert reply.status == 502
        assert reply.error_type == "capture_mismatch"
        assert reply.json["error"]["source"] == "gateway"
        assert said in reply.json["error"]["message"]
    (called,) = rig.called(rollout_id)
    assert called.status == "capture_mismatch"
    assert called.sampled_ids is None
    assert called.tokens_missing == "capture_mismatch"
    assert called.response is not None
    assert rig.gateway.state()["capture_mismatches"] == 1


async def test_scripted_policies_leave_the_same_trace_without_tokens(make_rig: Callable[..., Awaitable[Rig]]) -> None:
    rig = await make_rig(token_mode=False)
    rollout_id = rig.start_rollout()
    reply = await rig.chat(rollout_id)
    assert reply.json["choices"][0]["message"]["tool_calls"][0]["id"] == "call_0_0"
    (called,) = rig.called(rollout_id)
    assert called.tokens_missing == "scripted policy"
    assert (called.prompt_ids, called.sampled_ids, called.logprobs, called.logprobs_mode) == (None, None, None, None)
    assert [(s.model_version, s.start, s.end) for s in called.version_spans] == [("model-1", 0, 0)]
    history = [*ASK, reply.json["choices"][0]["message"], {"role": "tool", "tool_call_id": "call_0_0", "content": "[]"}]
    second = await rig.chat(rollout_id, messages=history, stream=True)
    assert second.events[-1] == "[DONE]"
    third = await rig.chat(rollout_id, messages=[*history, {"role": "assistant", "content": "All mailed."}, *ASK])
    assert third.json["choices"][0]["message"]["content"] == "Done."


async def test_calls_of_a_rollout_are_numbered_by_dispatch_and_the_numbering_goes_on_after_a_restart(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    for _ in range(3):
        await rig.chat(rollout_id)
    calls = rig.gateway.calls(rollout_id)
    assert [i.index for i in rig.intents(rollout_id)] == [0, 1, 2]
    assert calls.call_ids == tuple(i.call_id for i in rig.intents(rollout_id))
    assert calls.in_flight == 0
    assert calls.sampling_s > 0
    await rig.restart()
    await rig.chat(rollout_id)
    assert [i.index for i in rig.intents(rollout_id)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "path",
    [
        "/r/{id}/v1",
        "/ng-rollout/{id}/v1",
        "/ng-rollout/{id}/training-token-capture/v1",
        "/proxy/rollout/{id}/attempt/1/mode/train/openai/v1",
    ],
)
async def test_the_addresses_of_other_systems_lead_to_the_same_rollout(rig: Rig, path: str) -> None:
    rollout_id = rig.start_rollout()
    reply = await rig.chat(None, base=rig.gateway.url + path.format(id=rollout_id))
    assert reply.status == 200
    assert len(rig.called(rollout_id)) == 1


async def test_an_address_with_another_attempt_is_not_the_rollout(rig: Rig) -> None:
    rollout_id = rig.start_rollout(attempt=2)
    base = f"{rig.gateway.url}/proxy/rollout/{rollout_id}/attempt/1/mode/val/openai/v1"
    reply = await rig.chat(None, base=base)
    assert (reply.status, reply.error_type) == (404, "unknown_rollout")
    assert "attempt 2" in reply.json["error"]["message"]


async def test_a_call_without_a_rollout_is_captured_and_listed(rig: Rig) -> None:
    reply = await rig.chat(None)
    assert reply.status == 200
    (call,) = unattributed_calls(rig.ledger)
    assert call.call_id == reply.headers["X-Tally-Call-Id"]
    assert call.role == "unknown"
    kinds = [e.kind for e in rig.ledger.read_stream(f"unattributed-{call.call_id}")]
    assert kinds == ["ModelCallDispatched", "ModelCalled"]
    assert rig.gateway.state()["unattributed"] == 1
    assert dangling_intents(rig.ledger) == []


async def test_models_are_those_of_the_rollouts_upstream_or_the_names_known(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    for base, name in ((rig.gateway.base_url(rollout_id), "scripted"), (rig.gateway.base_url(None), "tiny")):
        async with rig.http.get(f"{base}/models") as response:
            assert [m["id"] for m in (await response.json())["data"]] == [name]


async def test_participants_have_upstreams_of_their_own_and_a_role_from_the_list(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    rig.gateway.register(rollout_id, rig.server.upstream("judge-7"), participant="judge", role="judge")
    await rig.chat(rollout_id, headers={"X-Tally-Participant": "judge"})
    await rig.chat(rollout_id, headers={"X-Tally-Role": "summary"})
    first, second = rig.called(rollout_id)
    assert (first.participant, first.role, first.version_spans[0].model_version) == ("judge", "judge", "judge-7")
    assert (second.participant, second.role, second.version_spans[0].model_version) == ("policy", "summary", "model-1")


async def test_an_api_key_is_sent_upstream_and_written_nowhere(rig: Rig) -> None:
    rollout_id = rig.start_rollout(register=False)
    rig.gateway.register(rollout_id, Upstream(rig.server.base_url, "gpt-x", "openai", api_key="sk-very-secret"))
    assert (await rig.chat(rollout_id, headers={"Authorization": "Bearer of-the-client"})).status == 200
    assert rig.server.received[-1].headers["Authorization"] == "Bearer sk-very-secret"
    stored = b"".join(e.body_bytes for e in rig.ledger.read_stream(f"rollout-{rollout_id}"))
    assert b"secret" not in stored
    assert rig.called(rollout_id)[0].tokens_missing == "the provider returns no token ids"


async def test_five_hundred_open_calls_are_all_recorded(make_rig: Callable[..., Awaitable[Rig]]) -> None:
    rig = await make_rig()
    rollout_ids = [rig.start_rollout() for _ in range(10)]
    gate = asyncio.Event()
    for rollout_id in rollout_ids:
        rig.server.fault(rollout_id, Fault(times=50, gate=gate))
    replies = [asyncio.create_task(rig.chat(rollout_id, seed=n)) for rollout_id in rollout_ids for n in range(50)]
    await rig.until(lambda: rig.server.requests == 500, within_s=60.0)
    assert rig.gateway.state()["inflight"] == 500
    gate.set()
    assert {reply.status for reply in await asyncio.gather(*replies)} == {200}
    assert [len(rig.called(rollout_id)) for rollout_id in rollout_ids] == [50] * 10
    assert sorted(i.index for i in rig.intents(rollout_ids[0])) == list(range(50))
    assert rig.gateway.state()["commits"] < 700
