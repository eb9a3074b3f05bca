"""The ledger's figures in Prometheus's text format, read anew at every scrape. Reads the database and serves HTTP."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from psycopg_pool import PoolTimeout

from ledger import measure
from ledger.errors import LedgerUnavailable
from ledger.ledger import LedgerHandle

KINDS_AT_ONCE = 100_000
"""Most positions counted by kind in one scrape, so that no scrape takes long; the next goes on from there."""


class LedgerCollector(Collector):
    """Collects the metrics of one ledger; events by kind are counted from the position at which it was made.

    Args:
        ledger: to look at.
    """

    def __init__(self, ledger: LedgerHandle) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._kinds: Counter[str] = Counter()
        self._failures = 0
        with ledger.connection() as conn:
            self._counted = measure.order(conn).position

    def collect(self) -> Iterator[Metric]:
        """The metrics of now; `tallystick_up` 0 and nothing else when the database cannot be asked."""
        began = time.perf_counter()
        # One scrape at a time: two at once would count the same positions twice.
        with self._lock:
            try:
                with self._ledger.connection() as conn:
                    metrics = [*self._of_log(conn), *self._of_storage(conn)]
            except (LedgerUnavailable, psycopg.Error, PoolTimeout):
                self._failures += 1
                metrics = []
            yield _gauge("tallystick_up", "Whether the ledger's database answered this scrape.", float(bool(metrics)))
            yield _counter("tallystick_scrape_failures", "Scrapes that the database did not answer.", self._failures)
        yield from metrics
        yield _gauge("tallystick_scrape_duration_seconds", "Time that this scrape took.", time.perf_counter() - began)

    def _of_log(self, conn: measure.Connection) -> Iterator[Metric]:
        order, sealed = measure.order(conn), measure.seal(conn)
        upto = min(order.position, self._counted + KINDS_AT_ONCE)
        self._kinds.update(measure.kinds(conn, self._counted, upto))
        self._counted = upto
        events = CounterMetricFamily("tallystick_events_ordered", "Events ordered since this exporter started, by kind.", labels=["kind"])
        for kind, count in sorted(self._kinds.items()):
            events.add_metric([kind], count)
        yield events
        yield _gauge("tallystick_ordered_position", "Position of the newest ordered event.", order.position)
        yield _gauge("tallystick_unordered_events", "Committed events that have no position yet.", order.waiting)
        yield _gauge("tallystick_ordering_lag_seconds", "Age of the oldest committed event without a position.", order.lag_s)
        yield _gauge("tallystick_order_holes", "Ids below the ordered range that may still be committed.", order.holes)
        yield _counter("tallystick_order_dead", "Ids that were taken and never committed.", order.dead)
        yield _counter("tallystick_order_steps", "Ordering steps that changed something.", order.step)
        size = 0 if sealed is None else sealed.size
        yield _gauge("tallystick_sealed_position", "Size of the largest checkpoint.", size)
        yield _gauge("tallystick_seal_lag_events", "Ordered events that no checkpoint covers.", order.position - size)
        if sealed is not None:
            yield _gauge("tallystick_checkpoint_age_seconds", "Time since the largest checkpoint was made.", sealed.age_s)
        lag = GaugeMetricFamily("tallystick_projection_lag_events", "Ordered events that a read model has not folded.", labels=["model"])
        for name, position in sorted(measure.projections(conn).items()):
            lag.add_metric([name], order.position - position)
        yield lag

    def _of_storage(self, conn: measure.Connection) -> Iterator[Metric]:
        staged, sizes = measure.staged(conn), measure.sizes(conn)
        yield _gauge("tallystick_token_staging_rows", "Calls whose tokens are not packed yet.", staged.rows)
        yield _gauge("tallystick_token_staging_bytes", "Bytes of tokens that are not packed yet.", staged.bytes)
        yield _gauge("tallystick_token_staging_ended_rows", "Staged calls of rollouts that have ended.", staged.ended)
        yield _gauge("tallystick_database_size_bytes", "Size of the ledger's database.", sizes.database)
        yield _gauge("tallystick_blobs_size_bytes", "Size of the blobs, with their indexes.", sizes.blobs)
        left = GaugeMetricFamily("tallystick_partition_numbers_left", "Numbers left in the partitions of a table.", labels=["table"])
        for room in measure.room(conn):
            left.add_metric([room.table], room.left)
        yield left


def serve(ledger: LedgerHandle, *, port: int, host: str = "127.0.0.1") -> tuple[int, Any]:
    """The port that metrics are served on from now on, and a function that ends it.

    Args:
        ledger: to look at; stays open while served.
        port: to listen on; 0 for any free one.
        host: address to listen on.
    Raises:
        OSError: the port is taken.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LedgerCollector(ledger))
    server, thread = start_http_server(port, addr=host, registry=registry)

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return int(server.server_address[1]), stop


def _gauge(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(name, documentation, value=value)


def _counter(name: str, documentation: str, value: float) -> Metric:
    return CounterMetricFamily(name, documentation, value=value)
