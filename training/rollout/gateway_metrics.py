"""The gateway's counters in Prometheus's text format. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_LATEST
ERRORS = {
    "upstream_errors": "upstream", "timeouts": "timeout", "client_aborted": "client", "interrupted": "interrupted",
    "capture_mismatches": "capture_mismatch", "ledger_failures": "ledger",
}  # fmt: skip
"""Counter to the source of the error that it counts."""
PLAIN = {
    "calls": "Calls that were begun.", "completed": "Calls that were answered whole.", "replayed": "Answers given again to a retry.",
    "coalesced": "Requests that joined a call in flight.", "retries": "Calls made again after a failure.",
    "refused": "Requests that never became a call.", "late": "Results recorded after their client was refused.",
    "unattributed": "Calls that belong to no rollout.", "commits": "Commits of the group appender.",
    "retried_alone": "Appends made again by themselves because a group failed.",
}  # fmt: skip
LEVELS = {"inflight": "Calls in flight.", "waiting": "Calls that wait for the gate.", "paused": "Whether the gate is closed."}


def exposition(state: Mapping[str, Any]) -> bytes:
    """What a scrape of a gateway gets, from what `Gateway.state` says."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Fixed([*_counted(state), *_levels(state)]))
    return generate_latest(registry)


def _counted(counters: Mapping[str, Any]) -> Iterable[Metric]:
    for name, documentation in PLAIN.items():
        yield CounterMetricFamily(f"tallystick_gateway_{name}", documentation, value=counters[name])
    errors = CounterMetricFamily("tallystick_gateway_errors", "Calls that were not answered whole, by source.", labels=["source"])
    for name, source in ERRORS.items():
        errors.add_metric([source], counters[name])
    yield errors


def _levels(levels: Mapping[str, Any]) -> Iterable[Metric]:
    for name, documentation in LEVELS.items():
        yield GaugeMetricFamily(f"tallystick_gateway_{name}", documentation, value=float(levels[name]))


class _Fixed(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterable[Metric]:
        return self._metrics
