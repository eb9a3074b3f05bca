"""Sizes of policies that are trained from scratch, as configurations of the Llama architecture, which vLLM serves as it is. Pure."""

from dataclasses import dataclass
from typing import Any

from ledger.errors import SettingsError


@dataclass(frozen=True)
class Preset:
    """A size.

    Attributes:
        layers: decoder layers.
        width: hidden size.
        heads: attention heads, all with keys and values of their own.
        head_dim: width of a head; vLLM's attention on CPUs takes 32, 64, 80, 96, 112, 128 and above alone.
        feed_forward: inner width of the feed-forward part.
        context: longest sequence in tokens.
    """

    layers: int
    width: int
    heads: int
    head_dim: int
    feed_forward: int
    context: int = 1024


PRESETS = {
    "0.2M": Preset(2, 64, 2, 32, 128),
    "0.7M": Preset(3, 128, 4, 32, 256),
    "1.4M": Preset(4, 160, 5, 32, 384),
    "3.5M": Preset(6, 192, 6, 32, 640),
}
"""Named after their parameters with the desk's vocabulary of about 750 tokens."""


def preset_of(name: str) -> Preset:
    """The preset of this name.

    Raises:
        SettingsError: there is none.
    """
    if name not in PRESETS:
        raise SettingsError(f"no preset {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]


def llama_config(preset: Preset, *, vocab_size: int, end_id: int, pad_id: int) -> dict[str, Any]:
    """The contents of `config.json`; embeddings are untied, since an engine that reloads tied weights can keep the old output layer.

    Args:
        vocab_size: number of tokens.
        end_id: the token that ends a message; sampling stops there.
        pad_id: a token that no text has.
    """
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": preset.width,
        "intermediate_size": preset.feed_forward,
        "num_hidden_layers": preset.layers,
        "num_attention_heads": preset.heads,
        "num_key_value_heads": preset.heads,
        "head_dim": preset.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": preset.context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "vocab_size": vocab_size,
        "bos_token_id": None,
        "eos_token_id": end_id,
        "pad_token_id": pad_id,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "initializer_range": 0.02,
        "use_cache": True,
    }
