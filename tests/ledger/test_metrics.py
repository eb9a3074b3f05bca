"""Metrics: what Prometheus reads is what the ledger holds."""

import urllib.request
from collections.abc import Callable, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ledger import projections
from ledger.events import RewardDerived
from ledger.ledger import LedgerHandle
from ledger.metrics import serve
from tests.conftest import Cluster

Scrape = Callable[[], dict[str, float]]


def reward(reward_id: str) -> RewardDerived:
    return RewardDerived(reward_id=reward_id, rollout_id="r", rule="rule", rule_id="0" * 64, verdict_ids=[], value=None, reason="none")


@pytest.fixture
def scrape(ledger: LedgerHandle) -> Iterator[Scrape]:
    """Reads what is served: name with labels to value. Everything must have HELP text and fit Prometheus's names."""
    port, stop = serve(ledger, port=0)

    def read() -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        assert all(family.documentation and family.name.startswith("tallystick_") for family in families)
        return {
            "".join([sample.name, *(f"[{value}]" for value in sample.labels.values())]): sample.value
            for family in families
            for sample in family.samples
        }

    yield read
    stop()


def test_a_scrape_shows_order_lag_and_sizes(ledger: LedgerHandle, scrape: Scrape) -> None:
    ledger.append([ledger.new(reward(str(n))) for n in range(3)])
    first = scrape()
    assert (first["tallystick_up"], first["tallystick_ordered_position"], first["tallystick_unordered_events"]) == (1, 0, 4)
    assert first["tallystick_ordering_lag_seconds"] > 0
    ledger.barrier()
    projections.catch_up(ledger, "rewards")
    then = scrape()
    assert (then["tallystick_ordered_position"], then["tallystick_unordered_events"], then["tallystick_ordering_lag_seconds"]) == (4, 0, 0)
    assert then["tallystick_projection_lag_events[rewards]"] == 0
    assert then["tallystick_projection_lag_events[rollouts]"] == 4
    assert (then["tallystick_seal_lag_events"], "tallystick_checkpoint_age_seconds" in then) == (4, False)
    assert then["tallystick_database_size_bytes"] > 10**6
    assert then["tallystick_partition_numbers_left[event]"] > 2**23
    assert then["tallystick_scrape_failures_total"] == 0


def test_events_are_counted_by_kind_from_the_start_of_the_exporter_and_once(ledger: LedgerHandle, scrape: Scrape) -> None:
    for n in range(3):
        ledger.append([ledger.new(reward(str(n)))])
        ledger.barrier()
        assert scrape()["tallystick_events_ordered_total[RewardDerived]"] == n + 1
    assert scrape()["tallystick_events_ordered_total[RewardDerived]"] == 3


def test_a_checkpoint_has_its_lag_and_age(ledger: LedgerHandle, scrape: Scrape) -> None:
    ledger.append([ledger.new(reward("a"))])
    ledger.barrier()
    with ledger.connection() as conn:
        conn.execute("INSERT INTO checkpoint (origin, size, root, note) VALUES ('log', 1, %s, '')", (b"x" * 32,))
    seen = scrape()
    assert (seen["tallystick_sealed_position"], seen["tallystick_seal_lag_events"]) == (1, 1)
    assert 0 <= seen["tallystick_checkpoint_age_seconds"] < 60


def test_a_database_that_is_gone_is_up_0_and_counted(ledger: LedgerHandle, scrape: Scrape, cluster: Cluster) -> None:
    assert scrape()["tallystick_up"] == 1
    cluster.drop(ledger.url)
    ledger.pool.timeout = 1.0
    seen = scrape()
    assert (seen["tallystick_up"], seen["tallystick_scrape_failures_total"]) == (0, 1)
    assert "tallystick_ordered_position" not in seen
