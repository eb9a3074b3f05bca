"""One real vLLM server: what it samples can be recomputed, new weights are really used, and it is started once."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.errors import EngineFailed
from training.rollout.engine import Engine, EngineSpec, refresh, served_version, start, status, stop
from training.rollout.engine_spec import ask

pytestmark = pytest.mark.slow

NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}
# Without "strict" vLLM forces the name but leaves the arguments free.
TOOL = {"type": "function", "function": {"name": "finish", "description": "End the task.", "parameters": NO_ARGUMENTS, "strict": True}}


def chat(engine: Engine, **more: Any) -> dict[str, Any]:
    """One chat completion with token ids and log-probabilities."""
    body = {
        "model": engine.spec.served_name,
        "messages": [{"role": "user", "content": "Who owns ticket T-1?"}],
        "max_tokens": 24,
        "seed": 7,
    }
    answer: dict[str, Any] = ask(
        f"{engine.base_url}/chat/completions", body | {"return_token_ids": True, "logprobs": True} | more, timeout_s=600.0
    )
    return answer


def recomputed(folder: Path, prompt_ids: list[int], sampled_ids: list[int]) -> list[float]:
    """The log-probability of each sampled token under the weights of a folder, in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        logits_TV = model(torch.tensor([prompt_ids + sampled_ids])).logits[0, len(prompt_ids) - 1 : -1]
    logprob_TV = torch.log_softmax(logits_TV, dim=-1)
    return [float(logprob_TV[place, token]) for place, token in enumerate(sampled_ids)]


def largest_gap(answer: dict[str, Any], folder: Path) -> float:
    """Largest difference between the server's log-probabilities and those of the folder, in nats."""
    choice = answer["choices"][0]
    reported = [column["logprob"] for column in choice["logprobs"]["content"]]
    expected = recomputed(folder, answer["prompt_token_ids"], choice["token_ids"])
    return max(abs(a - b) for a, b in zip(reported, expected, strict=True))


def test_ids_counts_and_log_probabilities_agree_with_each_other_and_with_torch(vllm_engine: Engine, smollm2_dir: Path) -> None:
    answer = chat(vllm_engine)
    choice, usage = answer["choices"][0], answer["usage"]
    assert len(answer["prompt_token_ids"]) == usage["prompt_tokens"]
    assert len(choice["token_ids"]) == len(choice["logprobs"]["content"]) == usage["completion_tokens"]
    assert largest_gap(answer, smollm2_dir) < 2e-3
    again = chat(vllm_engine)["choices"][0]
    assert again["token_ids"] == choice["token_ids"]


def test_a_named_tool_call_is_valid_and_its_log_probabilities_are_those_of_the_grammar(vllm_engine: Engine, smollm2_dir: Path) -> None:
    choice_of_tool = {"type": "function", "function": {"name": "finish"}}
    answer = chat(vllm_engine, tools=[TOOL], tool_choice=choice_of_tool, temperature=0.0, max_tokens=48)
    choice = answer["choices"][0]
    call = choice["message"]["tool_calls"][0]["function"]
    assert (call["name"], json.loads(call["arguments"])) == ("finish", {})
    # The forced first token has probability 1 under the grammar and almost none under the model.
    assert choice["logprobs"]["content"][0]["logprob"] == pytest.approx(0.0, abs=1e-3)
    assert largest_gap(answer, smollm2_dir) > 1.0


def test_new_weights_are_used_everywhere_and_the_probe_says_so(vllm_engine: Engine, smollm2_dir: Path, changed_dir: Path) -> None:
    done = refresh(vllm_engine, changed_dir, "changed")
    try:
        assert (done.version, done.previous_version, done.cache_reset) == ("changed", "pretrained", True)
        assert done.moved_nats > 0.05
        assert done.cache_gap_nats < 1e-2
        assert served_version(vllm_engine) == "changed"
        answer = chat(vllm_engine)
        assert largest_gap(answer, changed_dir) < 2e-3
        assert largest_gap(answer, smollm2_dir) > 0.05
    finally:
        back = refresh(vllm_engine, smollm2_dir, "pretrained")
    assert back.moved_nats > 0.05
    assert largest_gap(chat(vllm_engine), smollm2_dir) < 2e-3


def test_tied_weights_are_refused_before_the_server_is_paused(vllm_engine: Engine, smollm2_dir: Path, tmp_path: Path) -> None:
    config = json.loads((smollm2_dir / "config.json").read_text()) | {"tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(EngineFailed, match="tie_word_embeddings"):
        refresh(vllm_engine, tmp_path, "tied")
    assert status(vllm_engine.log.parent).state == "serving"
    assert served_version(vllm_engine) == "pretrained"


def test_a_second_start_reuses_the_server_and_loads_the_version_asked_for(vllm_engine: Engine, smollm2_dir: Path) -> None:
    home = vllm_engine.log.parent
    said: list[str] = []
    same = start(vllm_engine.spec, home, say=said.append)
    assert (same.pid, same.base_url, said) == (vllm_engine.pid, vllm_engine.base_url, [])
    later = start(replace(vllm_engine.spec, version="later"), home, say=said.append)
    assert later.pid == vllm_engine.pid
    assert (status(home).state, status(home).version) == ("serving", "later")
    # A server that someone left paused is made to serve again.
    ask(f"{later.root_url}/pause?mode=wait", post=True)
    assert status(home).state == "paused"
    start(vllm_engine.spec, home, say=said.append)
    assert (status(home).state, status(home).version) == ("serving", "pretrained")


def test_a_prompt_beyond_the_context_is_a_typed_refusal(vllm_engine: Engine) -> None:
    with pytest.raises(EngineFailed, match=r"status 400.*input_tokens"):
        chat(vllm_engine, messages=[{"role": "user", "content": "a b c " * 2000}])


def test_a_server_that_cannot_start_fails_with_the_end_of_its_log(smollm2_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM is in the extras cpu and gpu")
    with pytest.raises(EngineFailed, match="no-such-option"):
        start(EngineSpec(model=smollm2_dir, served_name="x", more=("--no-such-option",)), tmp_path, say=print)
    assert status(tmp_path).state == "stopped"
    assert stop(tmp_path) is False


def test_a_stop_ends_a_server_that_is_still_starting_and_its_starter_gives_up(smollm2_dir: Path, tmp_path: Path) -> None:
    spec = EngineSpec(model=smollm2_dir, served_name="smollm2", max_model_len=512)
    with ThreadPoolExecutor(1) as threads:
        starting = threads.submit(start, spec, tmp_path, say=print)
        while status(tmp_path).state != "starting":
            assert not starting.done()
            time.sleep(0.1)
        began = time.monotonic()
        assert stop(tmp_path)
        assert time.monotonic() - began < 30
        with pytest.raises(EngineFailed, match="ended after"):
            starting.result(timeout=30)
    assert status(tmp_path).state == "stopped"


def test_many_seeded_long_prompts_at_once_do_not_end_the_server(vllm_engine: Engine) -> None:
    with ThreadPoolExecutor(8) as threads:
        asked = [
            threads.submit(
                chat, vllm_engine, seed=n, max_tokens=2, messages=[{"role": "user", "content": f"{n} " + "word " * (900 + 50 * n)}]
            )
            for n in range(8)
        ]
    assert [len(future.result()["choices"][0]["token_ids"]) > 0 for future in asked] == [True] * 8
