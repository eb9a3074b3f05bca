"""The ledger's append against what the peers' users have: eventsourcing with its table lock, MLflow tracing and Phoenix on the same server."""

import os
import time
from collections.abc import Callable
from itertools import count

import pytest

from ledger.events import RewardDerived
from ledger.ledger import open_ledger
from tests.benchmarks.peers.environments import PeerUnavailable, driver, measured
from tests.benchmarks.rounds import interleaved, report
from tests.benchmarks.test_append import one_kilobyte, write_together
from tests.conftest import Cluster

pytestmark = pytest.mark.bench
SECONDS = float(os.environ.get("TALLY_BENCH_SECONDS", "4"))
SPANS = 10
_tags = count()


def rollouts(cluster: Cluster) -> float:
    """Spans a second of one writer that commits ten events of about 1 KB at a time, each ordered before the next."""
    url, spans = cluster.migrated_database(), 0
    with open_ledger(url, project="bench", actor_id="bench") as ledger:
        bodies = one_kilobyte(f"t{next(_tags)}", 10**9)

        def rollout() -> list[RewardDerived]:
            return [next(bodies) for _ in range(SPANS)]

        ledger.wait_ordered(ledger.append([ledger.new(body) for body in rollout()]))
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            ledger.wait_ordered(ledger.append([ledger.new(body) for body in rollout()]))
            spans += SPANS
    cluster.drop(url)
    return spans / SECONDS


def peer(cluster: Cluster, name: str, rate: str, *arguments: str | int | float) -> float:
    """A peer's rate on an empty database of the same server."""
    url = cluster.empty_database()
    try:
        return float(measured(driver(name, "--database-url", url, *arguments))[rate])
    finally:
        cluster.drop(url)


def compared(title: str, arms: dict[str, Callable[[], float]], control: str, goal: float) -> None:
    """Print the rounds; a peer that cannot be installed is a skip that says why."""
    try:
        ratios = report(title, interleaved(arms, 3), control, "a second")
    except PeerUnavailable as error:
        pytest.skip(str(error))
    print(f"goal: >= {goal:g} times {control} (here {ratios['tallystick']:.1f})")


def test_eventsourcing_with_eight_writers(disk_cluster: Cluster) -> None:
    """8 writers, one event a transaction, dense order on both sides."""
    url = disk_cluster.migrated_database()
    compared(
        "8 writers, one event a transaction (events)",
        {
            "tallystick": lambda: write_together(url, 8, ordered=True)[0],
            "eventsourcing": lambda: peer(disk_cluster, "eventsourcing", "events_per_s", "--writers", 8, "--seconds", SECONDS),
        },
        "eventsourcing", 8,
    )  # fmt: skip
    disk_cluster.drop(url)


def test_mlflow_tracing(disk_cluster: Cluster) -> None:
    """Rollouts of ten spans of 1 KB, until stored."""
    compared(
        "Rollouts of ten spans (spans)",
        {
            "tallystick": lambda: rollouts(disk_cluster),
            "mlflow": lambda: peer(disk_cluster, "mlflow", "spans_per_s", "--spans", SPANS, "--seconds", SECONDS),
        },
        "mlflow", 100,
    )  # fmt: skip


def test_phoenix(disk_cluster: Cluster) -> None:
    """Traces of ten spans of 1 KB, until stored."""
    compared(
        "Traces of ten spans (spans)",
        {
            "tallystick": lambda: rollouts(disk_cluster),
            "phoenix": lambda: peer(disk_cluster, "phoenix", "spans_per_s", "--spans", SPANS),
        },
        "phoenix", 50,
    )  # fmt: skip
