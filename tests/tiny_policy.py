"""A tiny random Llama with a word-level tokenizer and a chat template, as a Hugging Face folder, for tests that need a policy."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|> {{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %} {{ call.function.name }} {{ call.function.arguments | tojson }}{% endfor %}"
    " <|end|> {% endfor %}{% if add_generation_prompt %}<|assistant|> {% endif %}"
)
CONTROL = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|unknown|>")
WORDS = [f"w{n}" for n in range(57)]


def tiny_policy(
    folder: Path, *, seed: int = 0, words: Sequence[str] = WORDS, dtype: torch.dtype = torch.float32, spread: float = 0.3, **config: Any
) -> Path:
    """A folder with a random policy: hidden size 64, 2 layers, 2 heads of 32, untied.

    Args:
        folder: made, or its weights replaced.
        seed: of the weights.
        words: the vocabulary beside the control tokens.
        spread: standard deviation of the weights; the larger, the less alike are the probabilities of tokens.
        config: other settings of `LlamaConfig`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = [*CONTROL, *words]
    settings = {
        "vocab_size": len(vocabulary), "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2, "num_attention_heads": 2,
        "head_dim": 32, "max_position_embeddings": 512, "tie_word_embeddings": False, "initializer_range": spread, "bos_token_id": None,
        "eos_token_id": 1, "pad_token_id": 0, **config,
    }  # fmt: skip
    torch.manual_seed(seed)
    LlamaForCausalLM(LlamaConfig(**settings)).to(dtype).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(vocabulary)}, unk_token="<|unknown|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL])
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "pad_token": "<|pad|>", "unk_token": "<|unknown|>",
        "model_max_length": 512, "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder
