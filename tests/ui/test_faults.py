"""A ledger that cannot be opened is a message that says what to do."""

import os

from tests.conftest import Cluster
from tests.ui.conftest import Open


def test_a_database_without_tables_says_to_migrate(cluster: Cluster, page: Open) -> None:
    url = cluster.empty_database()
    app = page(url)
    assert not app.exception
    assert "does not fit this release" in app.error[0].value
    assert "tally migrate" in app.code[0].value
    cluster.drop(url)


def test_a_database_that_is_not_there_says_how_to_start_one(page: Open, cluster: Cluster) -> None:
    app = page(f"{cluster.server.url('nowhere')}")
    assert not app.exception
    assert "cannot be reached" in app.error[0].value
    assert cluster.server.url("nowhere").rpartition("@")[0].rpartition(":")[2] not in app.code[0].value
    assert any("make db" in item.value for item in app.markdown)


def test_a_wrong_setting_is_named(ledger_url: str, page: Open) -> None:
    app = page(ledger_url)
    os.environ["TALLY_PROJECT"] = "Not A Project"
    app.run()
    assert not app.exception
    assert "A setting is wrong" in app.error[0].value
    assert "TALLY_PROJECT" in app.code[0].value
