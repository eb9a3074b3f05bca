"""The unpacked wheel, its tasks and a world with live workers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.bundle import BundleDraft
from ledger.errors import DownloadFailed
from ledger.settings import Settings
from ledger.wheels import fetch_wheel
from training.worlds.bfcl import WHEEL, Bfcl, load_tasks


@pytest.fixture(scope="session")
def unpacked() -> Path:
    """Folder of the unpacked wheel."""
    try:
        return fetch_wheel(WHEEL, Settings().data_dir / "wheels")
    except DownloadFailed as error:
        pytest.skip(f"{WHEEL} cannot be fetched here: {error}")


@pytest.fixture(scope="session")
def drafts(unpacked: Path) -> dict[str, BundleDraft]:
    """All tasks by name."""
    return {draft.name: draft for draft in load_tasks(unpacked)}


@pytest.fixture(scope="session")
def world(unpacked: Path) -> Iterator[Bfcl]:
    """A world whose workers end with the session."""
    made = Bfcl(unpacked)
    yield made
    made.close()
