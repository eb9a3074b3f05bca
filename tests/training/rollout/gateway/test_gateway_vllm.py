"""Against a real vLLM server: what is recorded decodes to what the client was told, token for token."""

import json
from typing import Any

import pytest

from training.rollout.engine import Engine
from training.rollout.gateway import Upstream

from .conftest import Rig

SCHEMA = {
    "type": "object", "properties": {"priority": {"type": "string", "enum": ["P1", "P2"]}}, "required": ["priority"], "additionalProperties": False,
}  # fmt: skip
# Without `strict` vLLM holds a call to the tool's name but not to its schema, and this model never closes its braces.
TOOLS = [{"type": "function", "function": {"name": "query_tickets", "strict": True, "parameters": SCHEMA}}]


def start(rig: Rig, engine: Engine) -> str:
    rollout_id = rig.start_rollout(register=False)
    rig.gateway.register(rollout_id, Upstream(engine.base_url, "pretrained", "vllm", logprobs_mode="processed_logprobs"))
    return rollout_id


@pytest.fixture(scope="module")
def tokenizer(vllm_engine: Engine) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(vllm_engine.spec.model)


def ids(rig: Rig, rollout_id: str) -> list[tuple[list[int], list[int], list[float]]]:
    return [
        tuple(array.tolist() for array in (call.prompt, call.sampled, call.logprobs) if array is not None)  # type: ignore[misc]
        for call in rig.tokens(rollout_id)
    ]


async def test_the_sampled_ids_decode_to_the_text_and_the_prompt_ids_to_the_rendered_messages(
    rig: Rig, vllm_engine: Engine, tokenizer: Any
) -> None:
    rollout_id = start(rig, vllm_engine)
    messages = [{"role": "user", "content": "Name three colours."}]
    reply = await rig.chat(rollout_id, model="smollm2", messages=messages, max_tokens=12, seed=3, temperature=0.7)
    assert reply.status == 200, reply.raw
    ((prompt, sampled, logprobs),) = ids(rig, rollout_id)
    assert tokenizer.decode(sampled, skip_special_tokens=True) == reply.json["choices"][0]["message"]["content"]
    assert tokenizer.decode(prompt) == tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert (len(prompt), len(sampled)) == (reply.json["usage"]["prompt_tokens"], reply.json["usage"]["completion_tokens"])
    assert len(logprobs) == len(sampled)
    assert max(logprobs) <= 0
    assert rig.called(rollout_id)[0].finish_reason == reply.json["choices"][0]["finish_reason"]


async def test_a_streamed_tool_call_is_captured_with_the_tokens_it_was_sampled_as(rig: Rig, vllm_engine: Engine, tokenizer: Any) -> None:
    rollout_id = start(rig, vllm_engine)
    fields: dict[str, Any] = {
        "model": "smollm2", "tools": TOOLS, "tool_choice": "required", "max_tokens": 40, "seed": 1, "temperature": 0.0,
    }  # fmt: skip
    plain = await rig.chat(rollout_id, **fields)
    streamed = await rig.chat(rollout_id, stream=True, **fields)
    assert plain.status == 200, plain.raw
    *chunks, done = streamed.events
    assert done == "[DONE]"
    first, second = ids(rig, rollout_id)
    assert first[:2] == second[:2]
    text = tokenizer.decode(second[1])
    assert text.startswith("<tool_call>")
    calls = [call for chunk in chunks for call in (chunk["choices"][0]["delta"].get("tool_calls") or [])]
    arguments = "".join(call["function"].get("arguments") or "" for call in calls)
    assert arguments in text
    assert json.loads(arguments) == json.loads(plain.json["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])
    assert all(chunk["choices"][0]["delta"] or chunk["choices"][0]["finish_reason"] for chunk in chunks)
    assert all(called.sampling["guided"] is True for called in rig.called(rollout_id))
    assert rig.called(rollout_id)[1].stream_complete is True


async def test_a_prompt_that_is_too_long_keeps_vllms_own_error(rig: Rig, vllm_engine: Engine) -> None:
    rollout_id = start(rig, vllm_engine)
    reply = await rig.chat(rollout_id, model="smollm2", messages=[{"role": "user", "content": "word " * 9000}], stream=True)
    assert reply.status == 400
    assert reply.json["error"]["param"] == "input_tokens"
    assert reply.headers["X-Tally-Error-Source"] == "engine"
    assert rig.called(rollout_id)[0].status == "upstream_error"
