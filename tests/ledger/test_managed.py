"""A managed PostgreSQL: everything works for a login that owns its database and is no superuser, and needs no extension."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from ledger import projections, verify
from ledger.backup import backup
from ledger.doctor import examine
from ledger.ids import utc_now
from ledger.ledger import LedgerHandle, open_ledger
from ledger.migrate import upgrade
from ledger.restore import restore
from ledger.settings import Settings
from tests.conftest import Cluster


@pytest.fixture
def managed(each_cluster: Cluster) -> Iterator[Callable[[], str]]:
    """Makes empty databases that one plain login owns."""
    made: list[str] = []
    with psycopg.connect(each_cluster.server.url("postgres"), autocommit=True) as conn:
        conn.execute("DROP ROLE IF EXISTS tenant")
        conn.execute("CREATE ROLE tenant LOGIN PASSWORD 'known' NOSUPERUSER NOCREATEROLE NOCREATEDB")

    def make() -> str:
        url = each_cluster.empty_database()
        made.append(url)
        with psycopg.connect(each_cluster.server.url("postgres"), autocommit=True) as conn:
            conn.execute(f"ALTER DATABASE {url.rpartition('/')[2]} OWNER TO tenant")
        return f"postgresql://tenant:known@{url.rpartition('@')[2]}"

    yield make
    for url in made:
        each_cluster.drop(url)
    with psycopg.connect(each_cluster.server.url("postgres"), autocommit=True) as conn:
        conn.execute("DROP ROLE tenant")


def test_an_owner_who_is_no_superuser_can_do_everything(
    managed: Callable[[], str], tmp_path: Path, sealed: Callable[[LedgerHandle], None]
) -> None:
    url, target = managed(), managed()
    upgrade(url, partition_width=10)
    settings = Settings(data_dir=tmp_path, database_url=url)
    with open_ledger(url, project="test", actor_id="tester") as ledger:
        sealed(ledger)
        assert ledger.barrier() == 21
        projections.catch_up(ledger)
        assert verify.verify(ledger).intact
        backup(ledger, settings, tmp_path / "copy", now=datetime(2026, 1, 2, tzinfo=UTC))
        with ledger.connection() as conn:
            assert conn.execute("SELECT extname FROM pg_extension").fetchall() == [("plpgsql",)]
    assert restore(tmp_path / "copy", target, settings).log.size == 21
    checks = {check.name: check for check in examine(settings, now=utc_now)}
    assert [check for check in checks.values() if check.status == "fail"] == []
    assert "tenant owns" in checks["login"].measured
