"""A second set of weights for the session's model."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def changed_dir(smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 with noise on every weight, the output layer included."""
    import torch
    from safetensors.torch import load_file, save_file

    folder = tmp_path_factory.mktemp("changed") / "model"
    shutil.copytree(smollm2_dir, folder)
    generator = torch.Generator().manual_seed(0)
    weights = load_file(folder / "model.safetensors")
    noisy = {name: weight + torch.randn(weight.shape, generator=generator).to(weight.dtype) * 0.01 for name, weight in weights.items()}
    save_file(noisy, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
