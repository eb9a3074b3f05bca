"""A small suite, made once for all tests of the benchmark."""

from collections.abc import Iterator

import pytest

from audit.benchmark.suite import make
from audit.benchmark.updates import make_updates, tiny_runs
from ledger.ledger import open_ledger
from tests.conftest import Cluster

from .rig import Made, open_suite, without_labels


@pytest.fixture(scope="session")
def made(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """Four cases of each kind on the desk, collected, judged and forged."""
    url = cluster.migrated_database()
    with open_ledger(url, project="test", actor_id="tester") as ledger:
        suite = open_suite(ledger, tmp_path_factory.mktemp("suite"))
        make(suite)
        runs = tiny_runs(suite.spec, sorted({group.bundle.bundle_id for group in suite.groups.values()}))
        make_updates(ledger, runs)
        ledger.barrier()
    copy, labels = without_labels(cluster, url)
    with open_ledger(url, project="test", actor_id="tester") as ledger:
        suite.ledger = ledger
        yield Made(suite, ledger, runs, copy, labels)
    cluster.drop(url)
    cluster.drop(copy)
