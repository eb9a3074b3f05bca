"""Next-token logits over packed rows: a plain Llama, and any other Hugging Face model behind the same call. Reads policy folders."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from ledger.errors import PolicyFolderError
from training.models.folder import read_config, weights_of

_PLAIN = {"attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0, "pretraining_tp": 1}


class RowModel(Protocol):
    """A model over rows that lie one after another along T; no token sees a token of another row."""

    def __call__(self, ids_T: Tensor, row_T: Tensor, at_N: Tensor | None = None) -> Tensor:
        """Logits for the token after each position, shape (T, V), or after the positions `at_N` alone, shape (N, V)."""
        ...


class Grid:
    """Where the tokens of packed rows lie in a rectangle of rows × longest row.

    Attributes:
        place_T: index of each token in the flattened rectangle.
        position_T: position of each token in its row.
        shape: rows and longest row.
    """

    def __init__(self, row_T: Tensor) -> None:
        first = torch.ones_like(row_T, dtype=torch.bool)
        first[1:] = row_T[1:] != row_T[:-1]
        number_T = first.cumsum(0) - 1
        starts = first.nonzero().squeeze(1)
        self.position_T = torch.arange(len(row_T), device=row_T.device) - starts[number_T]
        self.shape = (len(starts), int(self.position_T.max()) + 1)
        self.place_T = number_T * self.shape[1] + self.position_T

    def spread(self, values: Tensor) -> Tensor:
        """(T, ...) to (rows, longest row, ...), zeros where there is no token."""
        rectangle = values.new_zeros((self.shape[0] * self.shape[1], *values.shape[1:]))
        return rectangle.index_copy(0, self.place_T, values).view(*self.shape, *values.shape[1:])

    def collect(self, rectangle: Tensor) -> Tensor:
        """(rows, longest row, ...) to (T, ...)."""
        return rectangle.flatten(0, 1).index_select(0, self.place_T)


class _Norm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


class _Attention(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.heads, self.shared = config["num_attention_heads"], config["num_key_value_heads"]
        self.head_dim = config.get("head_dim") or config["hidden_size"] // self.heads
        width = config["hidden_size"]
        self.q_proj = nn.Linear(width, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(width, self.shared * self.head_dim, bias=False)
        self.v_proj = nn.Linear(width, self.shared * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, width, bias=False)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], grid: Grid) -> Tensor:
        q, k = (_turned(part(x).unflatten(-1, (-1, self.head_dim)), turn) for part in (self.q_proj, self.k_proj))
        v = self.v_proj(x).unflatten(-1, (-1, self.head_dim))
        q, k, v = (grid.spread(part).transpose(1, 2) for part in (q, k, v))
        # Padding stands behind a row's own tokens, so the causal mask alone keeps it out of sight.
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.shared < self.heads)
        return self.o_proj(grid.collect(seen.transpose(1, 2)).flatten(1))  # type: ignore[no-any-return]


class _FeedForward(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]


class _Layer(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.input_layernorm = _Norm(config["hidden_size"], config["rms_norm_eps"])
        self.self_attn = _Attention(config)
        self.post_attention_layernorm = _Norm(config["hidden_size"], config["rms_norm_eps"])
        self.mlp = _FeedForward(config)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], grid: Grid) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), turn, grid)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class _Body(nn.Module):
    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = _Norm(config["hidden_size"], config["rms_norm_eps"])


class CausalLM(nn.Module):
    """Llama with parameters named as transformers names them.

    Args:
        config: the contents of `config.json`.

    Raises:
        PolicyFolderError: tied embeddings, or a variant of Llama that this file does not have; the message names it.
    """

    rate: Tensor

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        if (why := unfit(config)) is not None:
            raise PolicyFolderError(why)
        self.config = dict(config)
        self.model = _Body(config)
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)
        head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        rate = 1.0 / theta_of(config) ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        self.register_buffer("rate", rate, persistent=False)

    def forward(self, ids_T: Tensor, row_T: Tensor, at_N: Tensor | None = None) -> Tensor:
        """Logits for the token after each position (or after those in `at_N` alone), as `RowModel` says."""
        grid = Grid(row_T)
        angle = grid.position_T.unsqueeze(1).float() * self.rate
        x = self.model.embed_tokens(ids_T)
        turn = tuple(part.repeat(1, 2).unsqueeze(1).to(x.dtype) for part in (angle.cos(), angle.sin()))
        for layer in self.model.layers:
            x = layer(x, turn, grid)
        return self.lm_head(self.model.norm(x if at_N is None else x.index_select(0, at_N)))  # type: ignore[no-any-return]

    def initialise(self, generator: torch.Generator) -> "CausalLM":
        """The model itself with fresh weights: normal with the configuration's range, ones in the norms."""
        with torch.no_grad():
            for _, weight in sorted(self.named_parameters()):
                if weight.dim() > 1:
                    weight.normal_(0.0, self.config.get("initializer_range", 0.02), generator=generator)
                else:
                    weight.fill_(1.0)
        return self


class Foreign(nn.Module):
    """Any transformers causal language model behind the call of `RowModel`: rows are padded into a rectangle and masked."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, ids_T: Tensor, row_T: Tensor, at_N: Tensor | None = None) -> Tensor:
        """Logits for the token after each position (or after those in `at_N` alone), as `RowModel` says."""
        grid = Grid(row_T)
        mask = grid.spread(torch.ones_like(ids_T))
        logits: Tensor = self.inner(input_ids=grid.spread(ids_T), attention_mask=mask, use_cache=False).logits
        found = grid.collect(logits)
        return found if at_N is None else found.index_select(0, at_N)


def unfit(config: Mapping[str, Any]) -> str | None:
    """Why `CausalLM` cannot be a configuration's model, or None when it can."""
    if config.get("tie_word_embeddings", True):
        return "tie_word_embeddings is true or missing; allowed: false, since reloaded tied weights can leave an old output layer"
    if config.get("model_type") != "llama":
        return f"model_type is {config.get('model_type')!r}; allowed: llama"
    if (act := config.get("hidden_act", "silu")) != "silu":
        return f"hidden_act is {act!r}; allowed: silu"
    for name, plain in _PLAIN.items():
        if config.get(name, plain) != plain:
            return f"{name} is {config[name]!r}; allowed: {plain!r}"
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if (kind := scaling.get("rope_type", scaling.get("type", "default"))) != "default":
        return f"rope_type is {kind!r}; allowed: default"
    return None


def theta_of(config: Mapping[str, Any]) -> float:
    """The base of the rotary frequencies, wherever this version of transformers wrote it."""
    nested = (config.get("rope_parameters") or {}).get("rope_theta")
    return float(nested if nested is not None else config.get("rope_theta", 10000.0))


def load_model(folder: Path, dtype: torch.dtype = torch.float32) -> CausalLM | Foreign:
    """The model in a policy folder: this file's own where it is a plain Llama, else transformers'.

    Raises:
        PolicyFolderError: the folder's embeddings are tied, or files are missing or do not fit.
    """
    config = read_config(folder)
    if unfit(config) is None:
        model = CausalLM(config)
        model.load_state_dict(weights_of(folder))
        return model.to(dtype)
    from transformers import AutoModelForCausalLM

    return Foreign(AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True))


def weights_to_save(model: nn.Module) -> dict[str, Tensor]:
    """The weights under their names in a policy folder."""
    state = (model.inner if isinstance(model, Foreign) else model).state_dict()
    return {name: weight.detach().contiguous() for name, weight in state.items()}


def _turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions, one half of a head after the other as transformers has them."""
    left, right = x.chunk(2, dim=-1)
    return x * turn[0] + torch.cat((-right, left), dim=-1) * turn[1]
