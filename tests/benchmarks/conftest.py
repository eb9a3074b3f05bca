"""Fixtures for benchmarks: a PostgreSQL server whose data is on a disk, because durability is part of what is measured."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger import embedded
from ledger.migrate import upgrade
from tests.conftest import Cluster


@pytest.fixture(scope="session")
def disk_cluster() -> Iterator[Cluster]:
    """PostgreSQL 18 from the wheel, fsync on, in the folder that TALLY_BENCH_DIR names, else in the usual place for temporary files."""
    with tempfile.TemporaryDirectory(prefix="tally-bench-", dir=os.environ.get("TALLY_BENCH_DIR")) as folder:
        # As root the server runs as another account, which must reach its data here.
        Path(folder).chmod(0o755)
        home = Path(folder) / "postgres"
        server = embedded.start(home, say=lambda _: None)
        try:
            upgrade(embedded.ensure_database(server, "template_tally"))
            yield Cluster(server)
        finally:
            embedded.destroy(home, say=lambda _: None)
