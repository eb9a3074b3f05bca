"""Scripted policies in lock-step: the events that they leave behind the gateway and a scripted server."""

from pathlib import Path
from typing import Any

import pytest

from ledger.errors import SettingsError
from ledger.events import ModelCallDispatched, ModelCalled, RolloutEnded
from ledger.ledger import LedgerHandle, open_ledger
from ledger.settings import Settings
from ledger.verify import verify
from tests.conftest import Cluster
from training import stages
from training.lab import Lab
from training.rollout.collect import collect
from training.rollout.harness_table import HarnessTable
from training.rollout.lockstep import collect_scripted
from training.run_config import Collection, RunConfig, TaskSource

from .lockstep_rig import RUN, groups, policy, site, streams

DESK = TaskSource(world="ticket_desk", count=1, seed=3, options={"families": True, "level": 0})
NATIVE = HarnessTable(calls_per_turn=40)
COMPACT = HarnessTable(calls_per_turn=40, tool_format="compact", results="values")
SHORTENED = HarnessTable(
    calls_per_turn=40, style="rewritten", hooks=({"name": "summarise_when_full", "params": {"at_tokens": 1, "keep": 2}},)
)
# Ids that are drawn, times, the upstream, and what commits to those.
DIFFER = {"call_id", "model_call_id", "upstream", "latency_s", "queued_s", "wall_s", "sampling_s", "tool_s", "calls_digest"}


def told(ledger: LedgerHandle, events: list[Any]) -> list[dict[str, Any]]:
    """The events of a rollout, their blobs read and ids of others as places, without what may differ."""
    at = {event.event_id: place for place, event in enumerate(events)}
    calls = {event.body.call_id: event.body.index for event in events if isinstance(event.body, ModelCallDispatched)}
    found = []
    for event in events:
        kept = {name: value for name, value in event.body.model_dump(mode="json").items() if name not in DIFFER}
        for name, value in kept.items():
            if isinstance(value, dict) and "blob_id" in value:
                kept[name] = (ledger.blob(value["blob_id"]), value["media"])
        # Salted, with a salt for each ledger.
        kept.pop("request_digest", None)
        if (asked_by := getattr(event.body, "model_call_id", None)) is not None:
            kept["asked_by"] = calls[asked_by]
        caused_by = None if event.causation_id is None else at[event.causation_id]
        found.append({"kind": event.kind, "stream": event.stream, "caused_by": caused_by, "of": event.correlation_id, **kept})
    return found


@pytest.mark.parametrize("harness", [NATIVE, COMPACT, SHORTENED], ids=["native", "compact", "shortened"])
async def test_the_events_are_those_of_the_gateway_and_the_scripted_server(
    cluster: Cluster, ledger: LedgerHandle, tmp_path: Path, harness: HarnessTable
) -> None:
    collections = tuple(Collection(policy=name, size=2) for name in ("oracle", "noisy_teacher"))
    config = RunConfig(name="t", seed=1, tasks=(DESK,), collect=collections, harness=harness)
    other = cluster.migrated_database()
    with open_ledger(other, project="test", actor_id="tester") as beside:
        with Lab(config, ledger, Settings(data_dir=tmp_path)) as here, Lab(config, beside, Settings(data_dir=tmp_path)) as there:
            wanted = [group for collection in collections for group in here.groups(collection)]
            done = await collect_scripted(here.bare_site(), RUN, wanted, concurrency=3)
            async with there.site(wanted) as served:
                assert (await collect(served, RUN, wanted)).ran == done.ran == 4
        mine, theirs = streams(ledger), streams(beside)
        assert mine.keys() == theirs.keys() and len(mine) == 4
        for slot in mine:
            assert told(ledger, mine[slot]) == told(beside, theirs[slot])
    cluster.drop(other)
    called = [event.body for events in mine.values() for event in events if isinstance(event.body, ModelCalled)]
    assert {(call.status, call.tokens_missing, call.sampled_ids, call.logprobs_mode) for call in called} == {
        ("completed", "scripted policy", None, None)
    }
    assert (done.spent.calls, done.spent.batches < len(called)) == (len(called), True)
    assert verify(ledger).intact


def test_a_lab_fills_the_slots_and_a_second_collection_adds_nothing(ledger: LedgerHandle, tmp_path: Path) -> None:
    config = RunConfig(name="t", seed=1, tasks=(DESK,), collect=(Collection(policy="oracle", size=2),), harness=COMPACT)
    shown: list[tuple[str, int, int]] = []
    with Lab(config, ledger, Settings(data_dir=tmp_path)) as lab:
        wanted = lab.groups(config.collect[0])
        done = stages.collect_scripts(lab, lab.run(), wanted, what="teachers", progress=lambda *told: shown.append(told))
        position = ledger.barrier()
        again = stages.collect_scripts(lab, lab.run(), wanted)
    assert (done.expected, done.ran, again.already, again.ran) == (2, 2, 2, 0)
    assert ledger.barrier() == position
    assert {(what, total) for what, _, total in shown} == {("teachers", 2)} and sum(count for _, count, _ in shown) == 2
    ends = [events[-1].body for events in streams(ledger).values()]
    assert [end.ended_by for end in ends if isinstance(end, RolloutEnded)] == ["finished"] * 2


async def test_a_policy_that_samples_is_refused_before_anything_is_written(ledger: LedgerHandle) -> None:
    position = ledger.barrier()
    async with site(ledger) as here:
        with pytest.raises(SettingsError, match="policy 'tiny' is sampled; allowed here: scripted ones"):
            await collect_scripted(here, RUN, groups(1, 1, policy()))
    assert ledger.barrier() == position
