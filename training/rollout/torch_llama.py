"""A Llama decoder over keys and values that are kept in place, for many sequences at once. Reads model folders."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from ledger.errors import EngineFailed
from training.rollout.engine_refresh import check_weights

# With at least this many rows a product's rows do not depend on how many others there are, for the kernels that torch uses on a CPU;
# with fewer, other kernels add in another order.
ROWS = 16
# Keys beyond a sequence's own have weight zero; in whole blocks they do not change the order in which the others are added.
KEYS = 64
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def rounded(count: int, step: int) -> int:
    """`count` rounded up to a multiple of `step`, at least one."""
    return max(1, -(-count // step)) * step


@dataclass(frozen=True)
class _Layer:
    norm: Tensor
    qkv: Tensor
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True)
class _Place:
    """Where the new tokens of a batch go, the same for every layer.

    Attributes:
        rows: shape (B, 1).
        at: positions, shape (B, S).
        bias: 0 where a key may be seen and -inf elsewhere, shape (B, 1, 1, S, L).
        cos, sin: shape (B, S, 1, head size).
        scores, weights: room for what each layer computes in turn, shape (B * key heads, groups * S, L).
    """

    rows: Tensor
    at: Tensor
    bias: Tensor
    cos: Tensor
    sin: Tensor
    scores: Tensor
    weights: Tensor


class Llama:
    """The weights of a model folder, ready to decode.

    Attributes:
        context: longest sequence in tokens.
        vocabulary: number of token ids.
        dtype: of weights, keys and values.
    """

    def __init__(self, config: dict[str, Any], weights: dict[str, Tensor], dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.context, self.vocabulary = int(config["max_position_embeddings"]), int(config["vocab_size"])
        self.heads = int(config["num_attention_heads"])
        self.kv_heads = int(config.get("num_key_value_heads") or self.heads)
        self.size = int(config.get("head_dim") or config["hidden_size"] // self.heads)
        self._eps = float(config["rms_norm_eps"])
        self._embedding, self._norm, self._head = (
            weights[name] for name in ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight")
        )
        self._layers = [_layer(weights, f"model.layers.{n}.") for n in range(int(config["num_hidden_layers"]))]
        steps = torch.arange(0, self.size, 2, dtype=torch.int64).float() / self.size
        angles = torch.outer(torch.arange(rounded(self.context, KEYS) + KEYS).float(), 1.0 / (_theta(config) ** steps))
        both = torch.cat([angles, angles], -1)
        self._cos, self._sin = both.cos().to(dtype), both.sin().to(dtype)

    def cache(self, rows: int, keys: int) -> Tensor:
        """Room for the keys and values of a batch: shape (layers, 2, rows, key heads, keys, head size), zeros."""
        return torch.zeros(len(self._layers), 2, rows, self.kv_heads, keys, self.size, dtype=self.dtype)

    def hidden(self, ids: Tensor, start: Tensor, cache: Tensor) -> Tensor:
        """Last hidden states of new tokens, whose keys and values are written into `cache`.

        Args:
            ids: int64, shape (B, S); B * S and S, where it is not 1, are multiples of `ROWS`.
            start: position of each row's first new token, int64, shape (B,); the cache holds what stands before it.
            cache: as from `cache`; as many keys are read as it has.
        Returns:
            Shape (B, S, width).
        """
        place = self._place(ids.shape[1], start, cache.shape[4])
        x = F.embedding(ids, self._embedding)
        for layer, (keys, values) in zip(self._layers, cache, strict=True):
            x = x + self._attention(layer, F.rms_norm(x, (x.shape[-1],), layer.norm, self._eps), (keys, values), place)
            gate, up = F.linear(F.rms_norm(x, (x.shape[-1],), layer.mlp_norm, self._eps), layer.gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits in float32, shape (n, vocabulary), of last hidden states of shape (n, width); n is a multiple of `ROWS`."""
        return F.linear(F.rms_norm(hidden, (hidden.shape[-1],), self._norm, self._eps), self._head).float()

    def _place(self, length: int, start: Tensor, keys: int) -> _Place:
        at = start[:, None] + torch.arange(length)
        seen = torch.arange(keys) <= at[:, :, None]
        bias = torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf)[:, None, None]
        cos, sin = self._cos[at][:, :, None], self._sin[at][:, :, None]
        room = len(start) * self.kv_heads, self.heads // self.kv_heads * length, keys
        # Taken once: fresh memory for each layer costs more than what is computed in it.
        scores, weights = torch.empty(room, dtype=self.dtype), torch.empty(room)
        return _Place(torch.arange(len(start))[:, None], at, bias, cos, sin, scores, weights)

    def _attention(self, layer: _Layer, x: Tensor, kept: tuple[Tensor, Tensor], place: _Place) -> Tensor:
        batch, length = x.shape[:2]
        groups, (keys, values) = self.heads // self.kv_heads, kept
        heads = F.linear(x, layer.qkv).view(batch, length, self.heads + 2 * self.kv_heads, self.size)
        turned, value = heads[:, :, : self.heads + self.kv_heads], heads[:, :, self.heads + self.kv_heads :]
        low, high = turned.chunk(2, -1)
        turned = turned * place.cos + torch.cat([-high, low], -1) * place.sin
        keys[place.rows, :, place.at] = turned[:, :, self.heads :]
        values[place.rows, :, place.at] = value
        # Query heads of one key head stand together: (B * key heads, groups * S, size).
        query = turned[:, :, : self.heads].view(batch, length, self.kv_heads, groups, self.size)
        query = query.permute(0, 2, 3, 1, 4).reshape(batch * self.kv_heads, groups * length, self.size)
        torch.bmm(query * self.size**-0.5, keys.flatten(0, 1).transpose(1, 2), out=place.scores)
        scores = place.scores.float()
        scores.view(batch, self.kv_heads, groups, length, -1).add_(place.bias)
        torch.softmax(scores, -1, out=place.weights)
        mixed = _mixed(place.weights.to(self.dtype), values.flatten(0, 1))
        mixed = mixed.view(batch, self.heads, length, self.size).transpose(1, 2).reshape(batch, length, -1)
        return F.linear(mixed, layer.out)


def _mixed(weights: Tensor, values: Tensor) -> Tensor:
    """`weights @ values`, `KEYS` keys at a time: in one product the order of adding would depend on how many keys there are."""
    mixed = torch.bmm(weights[:, :, :KEYS], values[:, :KEYS])
    for start in range(KEYS, values.shape[1], KEYS):
        mixed.baddbmm_(weights[:, :, start : start + KEYS], values[:, start : start + KEYS])
    return mixed


def read_llama(folder: Path, *, dtype: str | None = None) -> Llama:
    """The model in a folder.

    Args:
        folder: in Hugging Face form.
        dtype: float32 or bfloat16; None for what the folder's configuration says.
    Raises:
        EngineFailed: another architecture, tied embeddings, or a weight that is missing.
    """
    check_weights(folder)
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    _check(folder, config)
    wanted = dtype or str(config.get("dtype") or config.get("torch_dtype") or "float32")
    if wanted not in DTYPES:
        raise EngineFailed(f"{folder} asks for dtype {wanted!r}; allowed: {', '.join(DTYPES)}")
    weights: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        weights |= {name: weight.to(DTYPES[wanted]) for name, weight in load_file(file).items()}
    try:
        return Llama(config, weights, DTYPES[wanted])
    except KeyError as error:
        raise EngineFailed(
            f"{folder} has no weight or setting {error}; expected those of LlamaForCausalLM, output layer included"
        ) from error


def _check(folder: Path, config: dict[str, Any]) -> None:
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    for name, seen, allowed in (
        ("architectures", config.get("architectures"), (["LlamaForCausalLM"],)),
        ("hidden_act", config.get("hidden_act", "silu"), ("silu",)),
        ("attention_bias", config.get("attention_bias", False), (False,)),
        ("mlp_bias", config.get("mlp_bias", False), (False,)),
        ("rope type", rope.get("rope_type") or rope.get("type") or "default", ("default",)),
    ):
        if seen not in allowed:
            raise EngineFailed(f"{folder} has {name} {seen!r}; the torch engine allows {allowed[0]!r}")


def _theta(config: dict[str, Any]) -> float:
    return float((config.get("rope_parameters") or {}).get("rope_theta") or config.get("rope_theta") or 10000.0)


def _layer(weights: dict[str, Tensor], prefix: str) -> _Layer:
    def joined(*names: str) -> Tensor:
        return torch.cat([weights[f"{prefix}{name}.weight"] for name in names])

    return _Layer(
        norm=joined("input_layernorm"),
        qkv=joined("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        out=joined("self_attn.o_proj"),
        mlp_norm=joined("post_attention_layernorm"),
        gate_up=joined("mlp.gate_proj", "mlp.up_proj"),
        down=joined("mlp.down_proj"),
    )
