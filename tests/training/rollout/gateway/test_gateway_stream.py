"""Event streams come apart and together the same way wherever the network cuts them."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.rollout.capture import CaptureMismatch
from training.rollout.gateway_stream import DONE, EventSplitter, StreamAssembly, chunk_for_client, event, replayed

STREAM = b': keep-alive\r\n\r\ndata: {"a": 1}\r\n\r\nevent: x\ndata: {"b":\ndata: 2}\n\ndata: [DONE]\n\ndata: unfinished'


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_events_do_not_depend_on_where_the_bytes_are_cut(cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(STREAM)]
    splitter = EventSplitter()
    found = [data for start, end in itertools.pairwise(bounds) for data in splitter.feed(STREAM[start:end])]
    assert found == [b'{"a": 1}', b'{"b":\n2}', b"[DONE]"]


def test_an_event_with_line_breaks_is_written_so_that_it_reads_the_same() -> None:
    assert EventSplitter().feed(event(b'{"b":\n2}')) == [b'{"b":\n2}']


def test_fragments_of_tool_calls_join_by_index() -> None:
    assembly = StreamAssembly()
    for calls in (
        [{"index": 1, "id": "c1", "function": {"name": "f"}}],
        [{"index": 0, "id": "c0"}],
        [{"index": 1, "function": {"arguments": "{}"}}],
    ):
        assembly.add({"choices": [{"index": 0, "delta": {"tool_calls": calls}}]})
    assembly.add({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    first, second = assembly.response()["choices"][0]["message"]["tool_calls"]
    assert first["id"] == "c0"
    assert second == {"type": "function", "id": "c1", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    "chunk",
    [
        {},
        {"choices": [{"index": 1, "delta": {}}]},
        {"choices": [{"delta": []}]},
        {"choices": [{"delta": {"tool_calls": [{"index": "0"}]}}]},
        {"choices": [{"delta": {}}, {"delta": {}}]},
    ],
)
def test_a_chunk_of_another_shape_is_a_mismatch(chunk: dict[str, object]) -> None:
    with pytest.raises(CaptureMismatch):
        StreamAssembly().add(chunk)


def test_content_after_the_finish_is_a_mismatch() -> None:
    assembly = StreamAssembly()
    assembly.add({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]})
    with pytest.raises(CaptureMismatch, match="after the finish"):
        assembly.add({"choices": [{"index": 0, "delta": {"content": "b"}}]})


def test_a_chunk_of_which_only_our_additions_are_left_is_not_sent() -> None:
    chunk = {"choices": [{"index": 0, "delta": {}, "token_ids": [5], "logprobs": {"content": []}, "finish_reason": None}]}
    assert chunk_for_client(chunk, ("return_token_ids", "logprobs")) is None
    assert chunk_for_client(chunk, ()) == chunk


def test_a_replay_puts_together_to_the_recorded_answer() -> None:
    message = {
        "role": "assistant", "content": "x", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }  # fmt: skip
    response = {
        "id": "1",
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"total_tokens": 3},
    }
    stream = replayed(response, include_usage=True)
    assert stream.endswith(DONE)
    assembly = StreamAssembly()
    for data in EventSplitter().feed(stream)[:-1]:
        assembly.add(json.loads(data))
    again = assembly.response()
    assert again["choices"][0]["message"] == message
    assert again["choices"][0]["finish_reason"] == "tool_calls"
    assert again["usage"] == {"total_tokens": 3}
