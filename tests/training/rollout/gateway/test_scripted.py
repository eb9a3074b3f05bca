"""The scripted server answers each rollout from its script, the same way each time it is asked."""

import json
from typing import Any

import aiohttp

from training.rollout.scripted import STOP_TOKEN, Fault, ScriptedServer
from training.worlds import AssistantTurn

USER = {"role": "user", "content": "go"}
TURNS = [AssistantTurn("first", (("a", "{}"), ("b", "not json"))), AssistantTurn(None, (("c", "{}"),))]


async def ask(server: ScriptedServer, rollout_id: str | None, messages: list[Any], **fields: Any) -> tuple[int, str]:
    headers = {} if rollout_id is None else {"X-Tally-Rollout-Id": rollout_id}
    body = {"model": "m", "messages": messages, **fields}
    async with aiohttp.ClientSession() as http, http.post(f"{server.base_url}/chat/completions", json=body, headers=headers) as response:
        return response.status, await response.text()


async def message(server: ScriptedServer, rollout_id: str | None, messages: list[Any]) -> Any:
    status, text = await ask(server, rollout_id, messages)
    assert status == 200, text
    return json.loads(text)["choices"][0]["message"]


async def test_the_turn_is_the_number_of_assistant_messages_so_that_asking_again_changes_nothing() -> None:
    async with ScriptedServer() as server:
        server.script("r1", TURNS)
        first = await message(server, "r1", [USER])
        assert first == await message(server, "r1", [USER])
        assert [call["id"] for call in first["tool_calls"]] == ["call_0_0", "call_0_1"]
        assert first["tool_calls"][1]["function"] == {"name": "b", "arguments": "not json"}
        second = await message(server, "r1", [USER, first, {"role": "tool", "content": "x"}])
        assert (second["content"], second["tool_calls"][0]["id"]) == (None, "call_1_0")
        assert (await message(server, "r1", [USER, first, second]))["content"] == "Done."


async def test_scripts_belong_to_their_rollouts() -> None:
    async with ScriptedServer() as server:
        server.script("r1", TURNS)
        server.script("r2", [AssistantTurn("other")])
        assert (await message(server, "r2", [USER]))["content"] == "other"
        server.forget("r2")
        status, text = await ask(server, "r2", [USER])
        assert status == 404
        assert "no script for rollout 'r2'" in text
        assert (await ask(server, "r1", []))[0] == 200


async def test_without_token_mode_there_are_no_tokens_and_no_usage() -> None:
    async with ScriptedServer() as server:
        server.script(None, TURNS)
        _, text = await ask(server, None, [USER], return_token_ids=True, logprobs=True)
        assert "token_ids" not in text
        assert "usage" not in text


async def test_in_token_mode_chunks_carry_the_tokens_of_the_whole_answer() -> None:
    async with ScriptedServer(token_mode=True) as server:
        server.script(None, [AssistantTurn("hello there")])
        fields = {"return_token_ids": True, "logprobs": True}
        whole = json.loads((await ask(server, None, [USER], **fields))[1])
        _, text = await ask(server, None, [USER], stream=True, **fields)
        chunks = [json.loads(block[6:]) for block in text.split("\n\n") if block and "[DONE]" not in block]
        ids = [token for chunk in chunks for token in chunk["choices"][0].get("token_ids", [])]
        assert ids == whole["choices"][0]["token_ids"] == [*b"hello there", STOP_TOKEN]
        assert whole["usage"]["completion_tokens"] == len(ids)


async def test_a_planted_fault_befalls_as_many_requests_as_it_says() -> None:
    async with ScriptedServer() as server:
        server.script(None, TURNS)
        server.fault(None, Fault(times=2, status=503))
        assert [(await ask(server, None, [USER]))[0] for _ in range(3)] == [503, 503, 200]
