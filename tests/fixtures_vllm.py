"""The pretrained model and one real vLLM server, shared by all tests of a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.errors import DownloadFailed
from training.rollout.engine import Engine, EngineSpec, start, stop
from training.rollout.pretrained import smollm2

MODELS = Path(__file__).parents[1] / ".tally" / "models"


@pytest.fixture(scope="session")
def smollm2_dir() -> Path:
    """The converted SmolLM2 folder; skips when it is neither there nor downloadable."""
    try:
        return smollm2(MODELS, say=print)
    except DownloadFailed as reason:
        pytest.skip(f"SmolLM2 is not here and cannot be fetched: {reason}")


@pytest.fixture(scope="session")
def vllm_engine(smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A float32 vLLM server of SmolLM2 with the tool parser, on loopback, stopped at the end of the session."""
    pytest.importorskip("vllm", reason="vLLM is in the extras cpu and gpu")
    home = tmp_path_factory.mktemp("engine")
    spec = EngineSpec(model=smollm2_dir, served_name="smollm2", version="pretrained", max_model_len=2048)
    try:
        yield start(spec, home, say=print)
    finally:
        stop(home)
