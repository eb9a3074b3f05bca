"""Low-rank adapters through peft: put on a model, kept as an adapter folder or merged into a policy folder, read back. Writes files."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ledger.errors import AdapterError
from training.models.causal_lm import Foreign
from training.models.folder import CONFIG, PolicyFiles, read_files, write_folder
from training.rollout.pretrained import MANIFEST, version_digest, weights_digest
from training.train_config import Lora

# peft takes longer to import than torch, and few policies have an adapter: only what uses one imports it.
if TYPE_CHECKING:
    from peft import PeftModel

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@dataclass(frozen=True)
class AdapterVersion:
    """An adapter with the base that it was trained on; neither is a model without the other.

    Attributes:
        folder: where the adapter is.
        adapter_digest: hex SHA-256 over its weights and its configuration.
        base_digest: twelve hex digits of the base folder's weights, tokenizer and template.
    """

    folder: Path
    adapter_digest: str
    base_digest: str

    @property
    def digest(self) -> str:
        """Twelve hex digits that name adapter and base together."""
        return hashlib.sha256(f"{self.base_digest}\n{self.adapter_digest}\n".encode()).hexdigest()[:12]


def attach(model: nn.Module, lora: Lora, *, seed: int) -> PeftModel:
    """The model with a new adapter, which alone is trainable; at first it changes nothing, since one of its halves is zero.

    Args:
        model: changed in place.
        lora: rank, alpha, dropout and targets.
        seed: of the half that is not zero.

    Raises:
        AdapterError: the model has no linear layer of a target's name.
    """
    from peft import LoraConfig, get_peft_model

    inner = model.inner if isinstance(model, Foreign) else model
    linear = {name.rpartition(".")[2] for name, module in inner.named_modules() if isinstance(module, nn.Linear)}
    if missing := [target for target in lora.targets if target not in linear]:
        raise AdapterError(f"no linear layer is named {', '.join(missing)}; allowed: {', '.join(sorted(linear))}")
    targets = sorted(lora.targets)
    config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=targets)  # type: ignore[arg-type]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return get_peft_model(inner, config)


@contextmanager
def without_adapter(model: PeftModel) -> Iterator[PeftModel]:
    """The model as its base alone for as long as the block runs: the frozen reference that needs no second copy."""
    with model.disable_adapter():
        yield model


def save_adapter(model: PeftModel, target: Path, *, base: Path) -> AdapterVersion:
    """The adapter's folder as peft and vLLM read it, there whole or not at all, with the digest of its base beside it.

    Args:
        target: the folder to make.
        base: the policy folder that the base was loaded from.

    Raises:
        AdapterError: `target` is there already.
    """
    from peft import get_peft_model_state_dict

    if target.exists():
        raise AdapterError(f"{target} is there already; allowed: a new folder for each version")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        made = Path(scratch) / "adapter"
        made.mkdir()
        # Whether the embedding was enlarged is looked up on a hub, by the base's name, unless it is said.
        state = get_peft_model_state_dict(model, save_embedding_layers=False)
        weights = {name: weight.detach().cpu().contiguous() for name, weight in state.items()}
        save_file(weights, str(made / ADAPTER_WEIGHTS), metadata={"format": "pt"})
        config = {key: sorted(value) if isinstance(value, set) else value for key, value in model.peft_config["default"].to_dict().items()}
        config |= {"base_model_name_or_path": base.name, "task_type": "CAUSAL_LM", "inference_mode": True}
        _write(made / ADAPTER_CONFIG, config)
        _write(made / MANIFEST, {"base": base.name, "base_digest": version_digest(base)})
        for path in (*made.iterdir(), made):
            _sync(path)
        made.rename(target)
    _sync(target.parent)
    return adapter_version(target)


def save_merged(model: PeftModel, target: Path, *, base: Path, dtype: torch.dtype | None = None) -> Path:
    """`target` as a policy folder whose weights have the adapter added in.

    Args:
        base: the policy folder that the base was loaded from; its tokenizer and template go along.
        dtype: of the weights; that of the loaded base where None. The sum is taken in float32 and rounded once.

    Raises:
        PolicyFolderError: `target` is there already.
    """
    weights = merged_weights(model, dtype=dtype)
    files = read_files(base)
    kinds = {str(weight.dtype).removeprefix("torch.") for weight in weights.values()}
    config = files.config | {"torch_dtype": sorted(kinds)[0]}
    texts = {**files.texts, CONFIG: json.dumps(config, indent=2, sort_keys=True) + "\n"}
    return write_folder(target, PolicyFiles(texts), weights)


def merged_weights(model: PeftModel, *, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """The base's weights under their own names, the adapter added in; the model itself is left as it is."""
    found: dict[str, Tensor] = {}
    base = model.get_base_model()
    layers = {name: module for name, module in base.named_modules() if hasattr(module, "get_delta_weight")}
    with torch.no_grad():
        for name, weight in base.state_dict().items():
            if ".lora_" in name:
                continue
            kept = weight.detach().to(torch.promote_types(weight.dtype, torch.float32), copy=True)
            owner, _, rest = name.partition(".base_layer.")
            if rest == "weight" and owner in layers:
                kept += layers[owner].get_delta_weight("default").to(kept.dtype)
            found[name.replace(".base_layer.", ".")] = kept.to(weight.dtype if dtype is None else dtype)
    return found


def load_adapter(model: nn.Module, folder: Path, *, base: Path, trainable: bool = True) -> PeftModel:
    """The model with the adapter of a folder on it.

    Args:
        model: loaded from `base`; changed in place.
        folder: made by `save_adapter`.
        base: the policy folder that the model was loaded from.
        trainable: whether training goes on.

    Raises:
        AdapterError: the adapter was trained on another base, or the folder lacks a file.
    """
    from peft import LoraConfig, PeftModel

    version = adapter_version(folder)
    if (seen := version_digest(base)) != version.base_digest:
        raise AdapterError(f"the adapter in {folder} was trained on base {version.base_digest}; this base is {seen}")
    inner = model.inner if isinstance(model, Foreign) else model
    config = LoraConfig.from_pretrained(str(folder))
    # A model that is not one of transformers' has no generation for peft to wrap.
    config.task_type = None
    loaded: PeftModel = PeftModel.from_pretrained(inner, str(folder), config=config, is_trainable=trainable)
    return loaded


def adapter_version(folder: Path) -> AdapterVersion:
    """What the adapter in a folder is.

    Raises:
        AdapterError: a file is missing.
    """
    needed = (ADAPTER_CONFIG, ADAPTER_WEIGHTS, MANIFEST)
    if missing := [name for name in needed if not (folder / name).is_file()]:
        raise AdapterError(f"{folder} holds no {', '.join(missing)}; needed are {', '.join(needed)}")
    config = hashlib.sha256((folder / ADAPTER_CONFIG).read_bytes()).hexdigest()
    adapter = hashlib.sha256(f"{weights_digest(folder)}\n{config}\n".encode()).hexdigest()
    return AdapterVersion(folder, adapter, str(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["base_digest"]))


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
