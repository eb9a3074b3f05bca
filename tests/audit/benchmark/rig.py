"""A small suite, and a rule that attributes by a few plain signs: a stand-in for an attribution, in tests alone."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from audit.benchmark.kinds import chosen_kinds
from audit.benchmark.suite import Suite, SuiteSpec
from audit.benchmark.updates import TinyRun
from audit.results import CheckResult
from audit.rollout_subject import RolloutSubject
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from tests.conftest import Cluster
from training.worlds.ticket_desk import TicketDesk

CASES, SEED = 4, 3
BROKEN = ("timeout", "permission_denied", "connection_error")


@dataclass(frozen=True)
class Said:
    """As `audit.attribution.Attribution`."""

    boundary: str
    fault: str | None = None
    reason: str = ""
    evidence_event_ids: tuple[str, ...] = field(default=())


def plain_rule(subject: RolloutSubject, results: Sequence[CheckResult], replays: Any) -> Said:
    """Whose fault it was by what stands out at once."""
    assert subject.ended is not None
    ended_id, ended = subject.ended
    if ended.ended_by == "world_error":
        return Said("environment", "connection_dropped", "the world broke", (ended_id,))
    own = [verdict for _, verdict in subject.judged if verdict.role == "bundle"]
    if own and own[0].status == "error":
        return Said("verifier", "verifier_crashed")
    passed = {verdict.role: verdict.passed for _, verdict in subject.judged}
    if passed["bundle"] is False and passed["second_opinion"] is True:
        return Said("verifier", "false_reject")
    if passed["bundle"] is True:
        return Said("none")
    if any(tool.error_class in BROKEN for _, tool in subject.tools):
        return Said("environment", "tool_timeout")
    for call in subject.calls:
        assert call.answered is not None
        if call.answered.finish_reason == "length" and (call.answered.usage.get("completion_tokens") or 0) < 256:
            return Said("harness", "length_stop_as_failure", "", call.event_ids)
    return Said("task")


@dataclass(frozen=True)
class Made:
    """A suite with its ledger, and the URL of a copy from which every label is gone, with how many there were."""

    suite: Suite
    ledger: LedgerHandle
    runs: tuple[TinyRun, ...]
    unlabelled_url: str
    labels: int


def open_suite(ledger: LedgerHandle, folder: Path, **choices: Any) -> Suite:
    """A suite on the desk alone."""
    spec = SuiteSpec(**{"seed": SEED, "cases": CASES, "kinds": chosen_kinds("all"), "worlds": ("ticket_desk",), **choices})
    return Suite(spec, ledger, Settings(data_dir=folder), {"ticket_desk": TicketDesk()})


def without_labels(cluster: Cluster, url: str) -> tuple[str, int]:
    """A copy of a database that nobody is connected to, its labels removed behind the ledger's back; and how many those were."""
    name = f"copy_{secrets.token_hex(6)}"
    with psycopg.connect(cluster.server.url("postgres"), autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name} TEMPLATE {url.rpartition('/')[2]}")  # type: ignore[arg-type]
    copy = cluster.server.url(name)
    with psycopg.connect(copy) as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        for table in ("event_order", "event_key"):
            conn.execute(f"DELETE FROM {table} WHERE id IN (SELECT id FROM event WHERE kind = 'FaultInjected')")  # type: ignore[arg-type]
        conn.execute("DELETE FROM stream_head WHERE stream_id IN (SELECT stream_id FROM event WHERE kind = 'FaultInjected')")
        removed = conn.execute("DELETE FROM event WHERE kind = 'FaultInjected'").rowcount
    return copy, removed
