"""Tokens through the gateway: staged beside their parent, packed after the end, exact whatever they are."""

import json
from typing import Any

import numpy as np
import pytest

from ledger.errors import SettingsError
from ledger.token_link import Linker
from ledger.token_packing import pack_ended, pack_rollout
from ledger.tokens import ids_bytes
from tests.token_histories import event, plain
from training.rollout.capture import CaptureMismatch, version_spans
from training.rollout.gateway_links import Linkers
from training.rollout.gateway_stream import dumps
from training.rollout.scripted import STOP_TOKEN, Fault

from .conftest import ASK, Rig, end_rollout


def staged(rig: Rig, rollout_id: str) -> list[tuple[bool, int, int]]:
    """Of each staged call whether it has a parent, what it shares, and how many prompt ids it stores: 28 bytes are of the encryption."""
    with rig.ledger.connection() as conn:
        return conn.execute(
            "SELECT t.parent IS NOT NULL, t.shared, (octet_length(t.prompt) - 28) / 4 FROM token_live AS t JOIN event_key AS k USING (event_id)"
            " JOIN stream_head AS h USING (stream_id) WHERE h.node_id = node_of(%s, %s) ORDER BY k.id",
            (rig.ledger.project, f"rollout-{rollout_id}"),
        ).fetchall()


def answer(prompt: list[int], sampled: list[int], entries: list[dict[str, Any]]) -> bytes:
    """An answer in vLLM's shape."""
    message = {"role": "assistant", "content": "\ufffd"}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "token_ids": sampled, "logprobs": {"content": entries}}
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(sampled)}
    return dumps({"id": "x", "object": "chat.completion", "choices": [choice], "prompt_token_ids": prompt, "usage": usage})


async def converse(rig: Rig, rollout_id: str, turns: int) -> None:
    messages: list[dict[str, Any]] = [*ASK]
    for turn in range(turns):
        reply = await rig.chat(rollout_id, messages=messages)
        assert reply.status == 200, reply.raw
        messages += [{"role": "assistant", "content": f"turn {turn}"}, {"role": "user", "content": f"and {turn}?"}]


async def test_a_prompt_is_staged_beside_the_call_that_it_continues_and_packed_after_the_end(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    await converse(rig, rollout_id, 3)
    rows = staged(rig, rollout_id)
    whole = rig.tokens(rollout_id)
    assert [row[0] for row in rows] == [False, True, True]
    assert [shared + stored for _, shared, stored in rows] == [0 if call.prompt is None else len(call.prompt) for call in whole]
    assert rows[2][1] > rows[1][2]
    rig.gateway.close_rollout(rollout_id)
    end_rollout(rig.ledger, rollout_id)
    packed = pack_rollout(rig.ledger, rollout_id)
    assert (packed.packs, packed.calls, packed.faults, staged(rig, rollout_id)) == (1, 3, (), [])
    assert [plain(call) for call in rig.tokens(rollout_id)] == [plain(call) for call in whole]


async def test_after_a_restart_a_call_has_no_parent_until_it_is_packed(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    await rig.chat(rollout_id)
    await rig.restart()
    rig.gateway.register(rollout_id, rig.server.upstream("model-1"))
    await rig.chat(rollout_id)
    assert [row[:2] for row in staged(rig, rollout_id)] == [(False, 0), (False, 0)]
    rig.gateway.close_rollout(rollout_id)
    end_rollout(rig.ledger, rollout_id)
    assert pack_rollout(rig.ledger, rollout_id).calls == 2
    first, second = rig.tokens(rollout_id)
    assert first.prompt is not None
    assert second.prompt is not None
    assert first.prompt.tolist() == second.prompt.tolist()
    assert np.shares_memory(first.prompt, second.prompt)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_of_100_000_tokens_is_captured_whole(rig: Rig, stream: bool) -> None:
    rollout_id = rig.start_rollout()
    messages = [{"role": "user", "content": "x" * 100_000}]
    for _ in range(2):
        reply = await rig.chat(rollout_id, messages=messages, stream=stream)
        assert reply.status == 200
    first, second = rig.tokens(rollout_id)
    for call in (first, second):
        assert call.prompt is not None
        assert bytes(call.prompt.astype(np.uint8)) == json.dumps(messages, separators=(",", ":")).encode()
    assert [row[2] for row in staged(rig, rollout_id)] == [len(json.dumps(messages, separators=(",", ":"))), 0]


async def test_tokens_whose_bytes_are_not_text_are_kept_as_they_came(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    entries = [
        {"token": "\ufffd", "bytes": [0xF0, 0x9F], "logprob": -0.5, "top_logprobs": []},
        {"token": "\ufffd", "bytes": [0xFF, 0x00], "logprob": -1.25, "top_logprobs": []},
    ]
    body = answer([1, 2, 3], [50_000, 50_001], entries)
    rig.server.fault(rollout_id, Fault(status=200, body=body))
    assert (await rig.chat(rollout_id)).status == 200
    (call,), (called,) = rig.tokens(rollout_id), rig.called(rollout_id)
    assert call.sampled is not None
    assert call.logprobs is not None
    assert (call.sampled.tolist(), call.logprobs.tolist()) == ([50_000, 50_001], [-0.5, -1.25])
    assert called.response is not None
    assert rig.ledger.blob(called.response.blob_id) == body


async def test_an_empty_completion_has_empty_arrays_and_not_missing_ones(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    rig.server.fault(rollout_id, Fault(times=2, status=200, body=answer([1, 2], [], [])))
    for _ in range(2):
        assert (await rig.chat(rollout_id)).status == 200
    end_rollout(rig.ledger, rollout_id)
    before = [plain(call) for call in rig.tokens(rollout_id)]
    assert [call[1:] for call in before] == [(ids_bytes([1, 2]), b"", b"")] * 2
    assert pack_rollout(rig.ledger, rollout_id).calls == 2
    assert [plain(call) for call in rig.tokens(rollout_id)] == before


async def test_a_call_that_belongs_to_no_rollout_is_packed_by_itself(rig: Rig) -> None:
    reply = await rig.chat(None)
    call_id = reply.headers["X-Tally-Call-Id"]
    before = [plain(call) for call in rig.tokens(None, call_id)]
    with rig.ledger.connection() as conn:
        assert conn.execute("SELECT count(*) FROM token_live WHERE shared = 0 AND parent IS NULL").fetchone() != (0,)
    assert pack_ended(rig.ledger).faults == ()
    with rig.ledger.connection() as conn:
        assert conn.execute(
            "SELECT count(*) FROM token_live AS t JOIN event AS e USING (event_id) WHERE e.key = %s", (f"called:{call_id}",)
        ).fetchone() == (0,)
    assert [plain(call) for call in rig.tokens(None, call_id)] == before
    assert before[0][2] is not None
    assert before[0][2][-4:] == ids_bytes([STOP_TOKEN])


async def test_a_closed_rollout_takes_no_room(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    await rig.chat(rollout_id)
    linkers = rig.gateway._recorder.linkers
    assert linkers.tokens > 0
    rig.gateway.close_rollout(rollout_id)
    assert linkers.tokens == 0


def test_linkers_let_go_of_what_was_used_longest_ago() -> None:
    linkers = Linkers(kept_tokens=10)
    linkers.add("a", event(0), ids_bytes([1, 2, 3, 4]), None)
    linkers.add("b", event(1), ids_bytes([1, 2, 3]), None)
    linkers.add("a", event(2), ids_bytes([1, 2, 3, 4, 5]), None)
    assert (linkers.tokens, linkers.dropped) == (8, 0)
    linkers.add("c", event(3), ids_bytes([9, 9]), ids_bytes([9, 9, 9]))
    assert (linkers.tokens, linkers.dropped, linkers.find("b", ids_bytes([1]))) == (10, 1, None)
    link = linkers.find("c", ids_bytes([9, 9, 9, 9, 9, 1]))
    assert link is not None
    assert (link.parent, link.shared, link.suffix.tolist()) == (event(3), 5, [1])
    linkers.drop("c")
    linkers.drop("c")
    assert linkers.find("c", ids_bytes([9])) is None


def test_a_linker_counts_each_shared_token_once() -> None:
    linker = Linker()
    linker.add(event(0), np.array([1, 2, 3], "<i4"), np.array([4], "<i4"))
    linker.add(event(1), np.array([1, 2, 3, 4, 5], "<i4"), None)
    assert linker.tokens == 5


async def test_a_refresh_stamps_later_calls_and_is_refused_while_a_call_could_cross_it(rig: Rig) -> None:
    rollout_id = rig.start_rollout()
    server = rig.server.upstream("model-1").base_url
    await rig.chat(rollout_id)
    with pytest.raises(SettingsError, match="the gateway open; allowed: paused"):
        rig.gateway.refreshed(server, "model-2")
    await rig.gateway.pause("refresh")
    rig.gateway.refreshed(server, "model-2")
    rig.gateway.resume()
    await rig.chat(rollout_id, messages=[*ASK, *ASK])
    spans = [[(span.model_version, span.start) for span in called.version_spans] for called in rig.called(rollout_id)]
    assert spans == [[("model-1", 0)], [("model-2", 0)]]


def test_spans_that_a_server_states_are_kept_and_must_cover_the_tokens() -> None:
    def answered(*spans: tuple[str, int, int]) -> dict[str, Any]:
        return {"choices": [{"weight_versions": [{"version": version, "start": start, "end": end} for version, start, end in spans]}]}

    assert version_spans({"choices": [{}]}, 5, "model-1") == [("model-1", 0, 5)]
    assert version_spans(answered(("v7", 0, 2), ("v8", 2, 5)), 5, "model-1") == [("v7", 0, 2), ("v8", 2, 5)]
    for wrong in (answered(("v7", 0, 2), ("v8", 3, 5)), answered(("v7", 0, 4)), answered(("v7", 1, 5))):
        with pytest.raises(CaptureMismatch, match="weight_versions"):
            version_spans(wrong, 5, "model-1")
