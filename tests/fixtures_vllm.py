"""The pretrained model and one real vLLM server, shared by all tests of a session and started while other tests run."""

import importlib.util
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ledger.errors import DownloadFailed
from training.rollout.engine import Engine, EngineSpec, start, stop
from training.rollout.pretrained import smollm2

MODELS = Path(__file__).parents[1] / ".tally" / "models"
HOME = "TALLY_TEST_ENGINE"
"""Names the folder of the server to the processes among which the tests are divided: whoever comes first starts it, the others find it."""
_ENGINE = pytest.StashKey["Future[Engine]"]()


def pytest_configure(config: pytest.Config) -> None:
    """Choose the folder once, in the process that divides the tests."""
    if not hasattr(config, "workerinput"):
        os.environ[HOME] = tempfile.mkdtemp(prefix="tally-engine-")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the server in the background when a collected test needs it, so that its minute does not add to theirs."""
    wanted = any("vllm_engine" in getattr(item, "fixturenames", ()) for item in session.items)
    if session.config.option.collectonly or not wanted or importlib.util.find_spec("vllm") is None:
        return
    session.config.stash[_ENGINE] = ThreadPoolExecutor(max_workers=1).submit(_started, Path(os.environ[HOME]))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop the server when all tests of all processes are over, also when none came to use it."""
    running = session.config.stash.get(_ENGINE, None)
    if running is not None:
        running.exception()
    if not hasattr(session.config, "workerinput"):
        stop(Path(os.environ[HOME]))


def _started(home: Path) -> Engine:
    spec = EngineSpec(model=smollm2(MODELS, say=_quiet), served_name="smollm2", version="pretrained", max_model_len=2048)
    return start(spec, home, say=_quiet)


def _quiet(line: str) -> None:
    """Progress of the background start, which no test shows."""


@pytest.fixture(scope="session")
def smollm2_dir(request: pytest.FixtureRequest) -> Path:
    """The converted SmolLM2 folder; skips when it is neither there nor downloadable."""
    running = request.config.stash.get(_ENGINE, None)
    if running is not None:
        running.exception()
    try:
        return smollm2(MODELS, say=_quiet)
    except DownloadFailed as reason:
        pytest.skip(f"SmolLM2 is not here and cannot be fetched: {reason}")


@pytest.fixture(scope="session")
def vllm_engine(smollm2_dir: Path, request: pytest.FixtureRequest) -> Engine:
    """A float32 vLLM server of SmolLM2 with the tool parser, on loopback, stopped at the end of the session."""
    running = request.config.stash.get(_ENGINE, None)
    if running is None:
        pytest.skip("vLLM is not installed: it is in the extras cpu and gpu")
    return running.result()
