"""What benchmarks run on: a server whose data is on a disk, because durability is part of what is measured."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from ledger import embedded
from ledger.migrate import upgrade
from tests.conftest import Cluster


@pytest.fixture(scope="session")
def disk_cluster() -> Iterator[Cluster]:
    """PostgreSQL 18 on the disk, with the memory that a small server would give it."""
    with tempfile.TemporaryDirectory(prefix="tally-bench-", dir=os.environ.get("TALLY_BENCH_DIR", "/var/tmp")) as folder:
        Path(folder).chmod(0o755)
        home = Path(folder) / "postgres"
        server = embedded.start(home, say=lambda _: None)
        try:
            with psycopg.connect(server.url("postgres"), autocommit=True) as conn:
                conn.execute("ALTER SYSTEM SET shared_buffers = '1GB'")
                conn.execute("ALTER SYSTEM SET max_wal_size = '4GB'")
            embedded.stop(home, say=lambda _: None)
            server = embedded.start(home, say=lambda _: None)
            upgrade(embedded.ensure_database(server, "template_tally"))
            yield Cluster(server)
        finally:
            embedded.destroy(home, say=lambda _: None)
