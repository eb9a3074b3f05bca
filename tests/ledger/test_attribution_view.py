"""What attribution may read: the evidence of a rollout, and no label of a planted fault."""

from dataclasses import fields, replace
from datetime import UTC, datetime

import pytest

from ledger.attribution_view import AttributionView, Evidence
from ledger.errors import LabelsWithheld, UnknownId
from ledger.events import FaultInjected, GroupDispatched, RolloutStarted
from ledger.ledger import LedgerHandle, open_ledger
from tests.conftest import Cluster


def start(ledger: LedgerHandle, rollout_id: str, *labels: str) -> None:
    group = GroupDispatched(
        group_id="g", bundle_id="0" * 64, size=1, experiment_id="e", run_id="r", round=0, policy="p", rollout_kind="ordinary"
    )
    started = RolloutStarted(
        rollout_id=rollout_id, group_id="g", bundle_id="0" * 64, slot=0, attempt=1, rollout_kind="ordinary", participants=[], seed=1
    )
    faults = [FaultInjected(rollout_id=rollout_id, index=n, fault=fault, place=f"call:{n}") for n, fault in enumerate(labels)]
    ledger.append([ledger.new(body) for body in (group, *faults, started)])


def test_a_rollout_is_read_with_its_group_and_without_its_labels(ledger: LedgerHandle) -> None:
    start(ledger, "a", "timeout", "slow_answer")
    view = AttributionView(ledger)
    assert [(event.stream, event.kind) for event in view.rollout("a")] == [("rollout-a", "RolloutStarted"), ("group-g", "GroupDispatched")]
    assert view.rollout("a")[0].body == ledger.read_stream("rollout-a")[0].body


@pytest.mark.parametrize("stream", ["fault-a", "run-r", "fault-", "faultless", "", "FAULT-a", "unattributed-c"])
def test_labels_and_what_would_give_them_away_are_refused(ledger: LedgerHandle, stream: str) -> None:
    start(ledger, "a", "timeout")
    with pytest.raises(LabelsWithheld, match="it reads those of rollout, group"):
        AttributionView(ledger).stream(stream)


def test_evidence_has_no_order_between_streams_in_which_a_label_would_leave_a_gap(ledger: LedgerHandle) -> None:
    assert {field.name for field in fields(Evidence)} & {"position", "recorded_at", "leaf"} == set()
    start(ledger, "a")
    before = AttributionView(ledger).rollout("a")
    ledger.append([ledger.new(FaultInjected(rollout_id="a", index=0, fault="timeout", place="call:0"))])
    assert AttributionView(ledger).rollout("a") == before


def test_two_ledgers_that_differ_in_labels_alone_look_alike(cluster: Cluster) -> None:
    moment, seen = datetime(2026, 1, 1, tzinfo=UTC), []
    for labels in ((), ("timeout", "slow_answer")):
        url = cluster.migrated_database()
        with open_ledger(url, project="test", actor_id="tester", clock=lambda: moment) as ledger:
            start(ledger, "a", *labels)
            ledger.barrier()
            assert len(ledger.read(kinds=["FaultInjected"])) == len(labels)
            # Event ids contain the ledger's own id.
            seen.append([replace(event, event_id="") for event in AttributionView(ledger).rollout("a")])
        cluster.drop(url)
    assert seen[0] == seen[1] and len(seen[0]) == 2


def test_an_unknown_rollout_is_named(ledger: LedgerHandle) -> None:
    with pytest.raises(UnknownId, match="no rollout 'nowhere'"):
        AttributionView(ledger).rollout("nowhere")
