"""Migrations: up, down, in step with the tables, and strangers refused."""

import psycopg
import pytest
from alembic.script import ScriptDirectory

from ledger.errors import SchemaMismatch
from ledger.ledger import open_ledger
from ledger.migrate import differences, downgrade, upgrade
from ledger.revisions import LOCATION, head_revision, known_revisions
from tests.conftest import Cluster


def test_migrated_tables_are_the_tables_of_the_code(each_cluster: Cluster) -> None:
    url = each_cluster.empty_database()
    upgrade(url)
    assert differences(url) == []
    upgrade(url)
    each_cluster.drop(url)


def test_down_and_up_again(each_cluster: Cluster) -> None:
    url = each_cluster.empty_database()
    upgrade(url)
    downgrade(url, "base")
    with psycopg.connect(url) as conn:
        left = conn.execute("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v')").fetchall()
        functions = conn.execute("SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace").fetchall()
    assert left == [("alembic_version",)]
    assert functions == []
    upgrade(url)
    assert differences(url) == []
    each_cluster.drop(url)


def test_the_revisions_are_those_that_alembic_reads() -> None:
    scripts = ScriptDirectory(str(LOCATION))
    assert known_revisions() == {script.revision: script.down_revision for script in scripts.walk_revisions()}
    assert head_revision() == scripts.get_current_head()


def test_an_empty_database_is_refused_with_what_to_do(cluster: Cluster) -> None:
    url = cluster.empty_database()
    with pytest.raises(SchemaMismatch, match=f"none; this release needs {head_revision()}: run `tally migrate`"):
        open_ledger(url, project="p", actor_id="a")
    cluster.drop(url)


@pytest.mark.parametrize(("revision", "told"), [("0001", "needs"), ("9999", "ahead of this release")])
def test_a_database_behind_or_ahead_is_refused(cluster: Cluster, revision: str, told: str) -> None:
    url = cluster.migrated_database()
    with psycopg.connect(url) as conn:
        conn.execute("UPDATE alembic_version SET version_num = %s", (revision,))
    with pytest.raises(SchemaMismatch, match=told):
        open_ledger(url, project="p", actor_id="a")
    if revision == "9999":
        with pytest.raises(SchemaMismatch, match=told):
            upgrade(url)
    cluster.drop(url)


def test_one_ledger_a_database_whoever_opens_it_first(cluster: Cluster) -> None:
    url = cluster.migrated_database()
    with open_ledger(url, project="p", actor_id="a") as one, open_ledger(url, project="q", actor_id="b") as two:
        assert one.ledger_id == two.ledger_id
        with one.connection() as conn:
            assert conn.execute("SELECT count(*) FROM event WHERE kind = 'LedgerCreated'").fetchone() == (1,)
    cluster.drop(url)
