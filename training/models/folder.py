"""Policy folders: a Hugging Face folder as the one form in which trainer, torch engine and vLLM exchange weights. Writes files."""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from ledger.errors import PolicyFolderError

WEIGHTS = "model.safetensors"
CONFIG, TOKENIZER, TOKENIZER_CONFIG, TEMPLATE = "config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
GENERATION = "generation_config.json"
NEEDED = (CONFIG, TOKENIZER, TOKENIZER_CONFIG, TEMPLATE)


@dataclass(frozen=True)
class PolicyFiles:
    """What stands in a policy folder beside its weights, by file name; the same for all versions of a policy."""

    texts: Mapping[str, str]

    @property
    def config(self) -> dict[str, Any]:
        """The contents of `config.json`."""
        config: dict[str, Any] = json.loads(self.texts[CONFIG])
        return config


def write_folder(target: Path, files: PolicyFiles, weights: Mapping[str, Tensor]) -> Path:
    """`target`, there whole or not at all: it is written under another name, synced, and renamed.

    Args:
        target: the folder to make.
        files: everything but the weights.
        weights: by name; all must lie in memory of their own.

    Raises:
        PolicyFolderError: `target` is there already, a file is missing, or the embeddings are tied.
    """
    if target.exists():
        raise PolicyFolderError(f"{target} is there already; allowed: a new folder for each version")
    if missing := [name for name in NEEDED if name not in files.texts]:
        raise PolicyFolderError(f"a policy folder without {', '.join(missing)}; needed are {', '.join(NEEDED)}")
    _untied(files.config, target)
    if "lm_head.weight" not in weights:
        raise PolicyFolderError("the weights have no lm_head.weight; allowed: an output layer of its own")
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    with ExitStack() as undone:
        undone.callback(shutil.rmtree, scratch, ignore_errors=True)
        for name, text in files.texts.items():
            (scratch / name).write_text(text, encoding="utf-8")
        save_file({name: weight.contiguous() for name, weight in weights.items()}, str(scratch / WEIGHTS), metadata={"format": "pt"})
        scratch.chmod(0o755)
        for path in (*scratch.iterdir(), scratch):
            _sync(path)
        scratch.rename(target)
        undone.pop_all()
    _sync(target.parent)
    return target


def read_files(folder: Path) -> PolicyFiles:
    """Everything in a policy folder but its weights.

    Raises:
        PolicyFolderError: a file is missing, or the embeddings are tied.
    """
    names = [name for name in (*NEEDED, GENERATION) if name in NEEDED or (folder / name).is_file()]
    files = PolicyFiles({name: _text(folder / name) for name in names})
    _untied(files.config, folder)
    return files


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's `config.json`.

    Raises:
        PolicyFolderError: it is missing or no JSON object, or the embeddings are tied.
    """
    try:
        config = json.loads(_text(folder / CONFIG))
    except json.JSONDecodeError as error:
        raise PolicyFolderError(f"{folder / CONFIG} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise PolicyFolderError(f"{folder / CONFIG} holds {type(config).__name__}; allowed: an object")
    _untied(config, folder)
    return config


def weights_of(folder: Path) -> dict[str, Tensor]:
    """All weights of the folder by name.

    Raises:
        PolicyFolderError: there are none.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise PolicyFolderError(f"{folder} holds no *.safetensors file")
    return {name: weight for file in files for name, weight in load_file(str(file)).items()}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise PolicyFolderError(f"cannot read {path}: {error.strerror}") from error


def _untied(config: Mapping[str, Any], folder: Path) -> None:
    if config.get("tie_word_embeddings", True) is not False:
        raise PolicyFolderError(
            f"{folder}: tie_word_embeddings is {config.get('tie_word_embeddings')!r}; allowed: false, written out,"
            " since an engine that reloads tied weights can keep the old output layer"
        )


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
