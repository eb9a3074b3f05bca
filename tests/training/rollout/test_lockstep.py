"""Collecting in lock-step: the events of the gateway, the tokens of an undisturbed run, and every call durable before its answer."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.bundle import BundleDraft
from ledger.canonical import parse
from ledger.errors import EngineFailed, SettingsError, WorldFailed
from ledger.events import ModelCallDispatched, ModelCalled, RolloutEnded
from ledger.ledger import LedgerHandle, open_ledger
from ledger.lineage import calls_digest
from ledger.verify import verify
from tests.conftest import Cluster
from tests.tiny_world import Library
from training.rollout.collect import Collected, collect
from training.rollout.harness import harness_of
from training.rollout.lockstep import collect_lockstep
from training.rollout.sampling_calls import Sample, SampleRequest
from training.rollout.torch_engine import TorchEngine

from .lockstep_rig import RUN, counted_tokens, groups, policy, served_over_http, site, streams, tiny_engine

GREEDY = policy(temperature=0.0)
# Ids, times, the upstream and latencies may differ; the seed holds the attempt where there is no keyed noise, and greedy answers ignore it.
DIFFER = {"rollout_id", "call_id", "upstream", "latency_s", "queued_s", "wall_s", "sampling_s", "tool_s", "calls_digest", "request_digest"}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> TorchEngine:
    return tiny_engine(tmp_path_factory.mktemp("policies") / "tiny")


def told(ledger: LedgerHandle, event: Any) -> dict[str, Any]:
    """The fields of an event, its blobs read, without what may differ."""
    body = event.body.model_dump(mode="json")
    kept = {name: value for name, value in body.items() if name not in DIFFER}
    for name in ("request", "response", "view", "snapshot"):
        if isinstance(kept.get(name), dict):
            kept[name] = ledger.blob(kept[name]["blob_id"])
    if event.kind == "ModelCallDispatched":
        kept["request"] = {name: value for name, value in parse(kept["request"]).items() if name != "seed"}
    if event.kind == "ModelCalled":
        kept["response"] = {name: value for name, value in parse(kept["response"]).items() if name not in ("id", "created")}
        assert kept["sampling"].pop("seed") is not None
    if event.kind == "RolloutStarted":
        assert {who.pop("endpoint") for who in kept["participants"]} <= {"vllm", "torch"}
    return {"kind": event.kind, "caused": event.causation_id is not None, **kept}


async def test_the_events_are_those_that_the_gateway_records(cluster: Cluster, ledger: LedgerHandle, engine: TorchEngine) -> None:
    wanted = groups(2, 2, GREEDY)
    async with site(ledger) as here:
        assert (await collect_lockstep(here, RUN, wanted, engine=engine)).ran == 4
    other = cluster.migrated_database()
    with open_ledger(other, project="test", actor_id="tester") as beside:
        async with served_over_http(engine) as upstream, site(beside, upstream) as there:
            assert (await collect(there, RUN, wanted)).ran == 4
        mine, theirs = streams(ledger), streams(beside)
        assert mine.keys() == theirs.keys()
        for slot in mine:
            left = [told(ledger, event) for event in mine[slot]]
            right = [told(beside, event) for event in theirs[slot]]
            # Commitments are salted, with a salt for each ledger.
            for one in (*left, *right):
                for name in ("prompt_ids", "sampled_ids", "logprobs"):
                    if one["kind"] == "ModelCalled":
                        assert one[name].pop("commitment")
            assert [one["kind"] for one in left] == [one["kind"] for one in right]
            assert left == right
        assert counted_tokens(ledger) == counted_tokens(beside)
    cluster.drop(other)


async def test_calls_are_recorded_in_order_and_packed(ledger: LedgerHandle, engine: TorchEngine) -> None:
    async with site(ledger) as here:
        done = await collect_lockstep(here, RUN, groups(4, 4, policy()), engine=engine)
    assert (done.expected, done.ran, done.unpacked) == (16, 16, 0)
    # All rollouts ask at the same three times.
    assert (done.spent.batches, done.spent.calls) == (3, 48)
    assert done.spent.cached_tokens > 0
    for events in streams(ledger).values():
        kinds = [event.kind for event in events]
        assert kinds == [
            "RolloutStarted",
            "StateSnapshotted",
            *["ModelCallDispatched", "ModelCalled"] * 3,
            "StateSnapshotted",
            "RolloutEnded",
        ]
        intents = [event for event in events if isinstance(event.body, ModelCallDispatched)]
        outcomes = [event for event in events if isinstance(event.body, ModelCalled)]
        assert [outcome.causation_id for outcome in outcomes] == [intent.event_id for intent in intents]
        assert events[-1].body.calls_digest == calls_digest([event.body.call_id for event in intents])
        assert [span.end for outcome in outcomes for span in outcome.body.version_spans] == [o.body.sampled_ids.count for o in outcomes]
    with ledger.connection() as conn:
        assert conn.execute("SELECT count(*) FROM token_live").fetchone() == (0,)
    assert verify(ledger).intact


async def test_a_second_collection_adds_nothing_and_needs_no_engine(ledger: LedgerHandle, engine: TorchEngine) -> None:
    wanted = groups(2, 1, policy())
    async with site(ledger) as here:
        await collect_lockstep(here, RUN, wanted, engine=engine)
        position = ledger.barrier()
        again = await collect_lockstep(here, RUN, wanted, engine=engine)
    assert (again.already, again.ran, again.spent.batches, ledger.barrier()) == (2, 0, 0, position)


class Watched(TorchEngine):
    """An engine that counts its batches, stops the collection in one of them, and looks at what is durable when one begins."""

    def __init__(self, ledger: LedgerHandle, stop_at: int = -1) -> None:
        super().__init__("tiny-engine")
        self.ledger, self.stop_at, self.batches = ledger, stop_at, 0
        self.task: asyncio.Task[Any] | None = None
        self.durable: list[int] = []

    def sample(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        """The answers, unless it is time to stop."""
        with self.ledger.connection() as conn:
            row = conn.execute("SELECT count(*) FROM event WHERE kind = 'ModelCalled'").fetchone()
        self.durable.append(0 if row is None else int(row[0]))
        if self.batches == self.stop_at and self.task is not None:
            self.task.get_loop().call_soon_threadsafe(self.task.cancel)
        self.batches += 1
        return super().sample(requests)


@pytest.mark.parametrize("stop_at", [0, 1, 3])
async def test_an_interrupted_collection_gives_the_tokens_of_an_undisturbed_one(
    cluster: Cluster, ledger: LedgerHandle, tmp_path: Path, stop_at: int
) -> None:
    wanted = groups(3, 4, policy(top_p=0.9), turns=4)
    plain = tiny_engine(tmp_path / "p")
    other = cluster.migrated_database()
    with open_ledger(other, project="test", actor_id="tester") as undisturbed:
        async with site(undisturbed) as there:
            await collect_lockstep(there, RUN, wanted, engine=plain)
        expected = counted_tokens(undisturbed)
    cluster.drop(other)
    engine = Watched(ledger, stop_at)
    engine.serve(tmp_path / "p", "tiny-1")
    async with site(ledger) as here:
        engine.task = asyncio.create_task(collect_lockstep(here, RUN, wanted, engine=engine))
        with pytest.raises(asyncio.CancelledError):
            await engine.task
        assert sum(isinstance(events[-1].body, RolloutEnded) and events[-1].body.superseded for events in streams(ledger).values()) == 12
        # Other batches than before: five at a time.
        done = await collect_lockstep(here, RUN, wanted, engine=engine, concurrency=5)
    assert done.ran == 12
    assert counted_tokens(ledger) == expected
    assert {attempt for _, _, attempt in streams(ledger)} == {1, 2}
    assert verify(ledger).intact


async def test_every_answer_is_durable_before_the_next_batch(ledger: LedgerHandle, tmp_path: Path) -> None:
    tiny_engine(tmp_path / "p")
    engine = Watched(ledger)
    engine.serve(tmp_path / "p", "tiny-1")
    async with site(ledger) as here:
        await collect_lockstep(here, RUN, groups(2, 3, policy(), turns=4), engine=engine)
    assert engine.durable == [0, 6, 12, 18]


class HalfBroken(Library):
    """A library whose every second reset fails."""

    def __init__(self) -> None:
        self.resets = 0

    def reset(self, draft: BundleDraft, *, seed: int) -> Any:
        self.resets += 1
        if self.resets % 2:
            raise WorldFailed("image not found")
        return super().reset(draft, seed=seed)


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_world_that_breaks_ends_its_own_rollout_only(ledger: LedgerHandle, engine: TorchEngine, threaded: bool) -> None:
    async with site(ledger) as here:
        broken = replace(here, worlds={"library": HalfBroken()})
        done = await collect_lockstep(broken, RUN, groups(3, 2, policy()), engine=engine, threaded=threaded)
    ends = [events[-1].body for events in streams(ledger).values()]
    assert (done.ran, sorted(end.ended_by for end in ends)) == (6, ["finished"] * 3 + ["world_error"] * 3)
    assert done.spent.calls == 9


async def test_a_conversation_that_no_longer_fits_ends_as_context_full(ledger: LedgerHandle, engine: TorchEngine) -> None:
    long = replace(groups(1, 1, policy(max_tokens=200), turns=40)[0], size=2)
    async with site(ledger) as here:
        roomy = harness_of(here.harness.table.model_copy(update={"calls": 40}))
        await collect_lockstep(replace(here, harness=roomy), RUN, [long], engine=engine)
    for events in streams(ledger).values():
        assert (events[-1].body.ended_by, events[-1].body.boundary) == ("context_full", "policy")
        last = [event.body for event in events if isinstance(event.body, ModelCalled)][-1]
        assert (last.status, last.http_status, last.error_source, last.sampled_ids) == ("upstream_error", 400, "engine", None)
        assert b"maximum context length is 512 tokens" in ledger.blob(last.error.blob_id)
    assert verify(ledger).intact


class Failing(TorchEngine):
    """An engine whose weights are broken."""

    def sample(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        """Nothing."""
        raise EngineFailed("log-probabilities are not finite")


async def test_an_engine_that_fails_is_an_engine_error(ledger: LedgerHandle, tmp_path: Path) -> None:
    tiny_engine(tmp_path / "p")
    engine = Failing("tiny-engine")
    engine.serve(tmp_path / "p", "tiny-1")
    async with site(ledger) as here:
        await collect_lockstep(here, RUN, groups(1, 2, policy()), engine=engine)
    assert {events[-1].body.ended_by for events in streams(ledger).values()} == {"engine_error"}


async def test_what_the_engine_does_not_serve_or_honour_is_refused_before_anything_is_written(
    ledger: LedgerHandle, engine: TorchEngine
) -> None:
    position = ledger.barrier()
    async with site(ledger) as here:
        with pytest.raises(SettingsError, match="policy 'tiny' is 'tiny-2'; the engine serves 'tiny-1'"):
            await collect_lockstep(here, RUN, groups(1, 1, replace(policy(), model_version="tiny-2")), engine=engine)
        with pytest.raises(SettingsError, match="presence_penalty is 1.0"):
            await collect_lockstep(here, RUN, groups(1, 1, policy(presence_penalty=1.0)), engine=engine)
        assert Collected(0, 0, 0, 0).ran == (await collect_lockstep(here, RUN, [], engine=engine)).ran
    assert ledger.barrier() == position
