"""Collecting with faults: they strike where planned, are labelled apart, and leave a rollout that says nothing of a plan."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ledger import queries
from ledger.attribution_view import AttributionView
from ledger.bundle import Bundle
from ledger.canonical import parse
from ledger.errors import BundleError, SettingsError
from ledger.events import FaultInjected, ModelCallDispatched, RolloutEnded, RolloutStarted, ToolCalled, VerdictGiven
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from training import stages
from training.bundles import seal
from training.lab import Lab
from training.rollout.collect import Group, collect
from training.rollout.harness_table import HarnessTable
from training.rollout.planting import Plants
from training.run_config import Collection, RunConfig, read_run_config
from training.worlds.fault_plan import read_plan

Body = TypeVar("Body")
Faults = list[dict[str, Any]]


@pytest.fixture
def collected(ledger: LedgerHandle, tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    """Collects the oracle on two desk tasks without faults and with each of the given plans, in one run."""
    opened: list[Lab] = []

    def run(*plans: Faults, twin: bool = True, harness: HarnessTable = HarnessTable(), **more: Any) -> Lab:
        planted = [Collection(policy="oracle", faults=read_plan(faults), **more) for faults in plans]
        tasks = ({"world": "ticket_desk", "count": 2, "seed": 3},)
        config = RunConfig(name="t", seed=1, tasks=tasks, collect=(*[Collection(policy="oracle")] * twin, *planted), harness=harness)
        lab = Lab(config, ledger, Settings(data_dir=tmp_path))
        opened.append(lab)
        stages.task_bundles(lab)
        stages.rollouts(lab)
        return lab

    yield run
    for lab in opened:
        lab.__exit__(None, None, None)


def bodies(lab: Lab, kind: type[Body], rollout_id: str | None = None) -> list[Body]:
    lab.ledger.barrier()
    found = [event.body for event in lab.ledger.read(kinds=[kind.__name__], limit=10_000)]
    return [body for body in found if isinstance(body, kind) and rollout_id in (None, getattr(body, "rollout_id", None))]


def rollout_ids(lab: Lab, collection: int) -> list[str]:
    """The rollouts of a collection of the experiment, by bundle."""
    groups = [lab.run().group_id(group) for group in lab.groups(lab.config.collect[collection])]
    started = {body.group_id: body.rollout_id for body in bodies(lab, RolloutStarted)}
    return [started[group] for group in groups]


def steps(lab: Lab, rollout_id: str) -> list[Any]:
    """What a rollout did and saw, without times and ids of its own; equal text has equal blobs within a project."""
    calls = [("asked", call.request) for call in bodies(lab, ModelCallDispatched, rollout_id)]
    own = {"rollout_id", "model_call_id", "latency_s"}
    tools = [("acted", *tool.model_dump(exclude=own).values()) for tool in bodies(lab, ToolCalled, rollout_id)]
    return [step for index, call in enumerate(calls) for step in (call, *tools[index : index + 1])]


def requests(lab: Lab, rollout_id: str) -> list[Mapping[str, Any]]:
    return [parse(lab.ledger.blob(call.request.blob_id)) for call in bodies(lab, ModelCallDispatched, rollout_id)]


def test_faults_strike_where_planned_and_their_labels_are_read_back_from_their_own_stream(collected: Callable[..., Lab]) -> None:
    lab = collected([{"kind": "permission_denied", "at": [1]}, {"kind": "truncated_result", "at": [2]}, {"kind": "wrong_reset"}])
    plan_id = read_plan(lab.config.collect[1].faults.as_json() if lab.config.collect[1].faults else []).plan_id
    for healthy, faulty in zip(rollout_ids(lab, 0), rollout_ids(lab, 1), strict=True):
        stream = [event.body for event in lab.ledger.read_stream(f"fault-{faulty}")]
        labels = [(b.index, b.fault, b.place, b.plan_id == plan_id) for b in stream if isinstance(b, FaultInjected)]
        assert labels == [
            (0, "wrong_reset", "reset", True), (1, "permission_denied", "call:1", True), (2, "truncated_result", "call:2", True),
        ]  # fmt: skip
        tools = bodies(lab, ToolCalled, faulty)
        assert tools[1].error_class == "permission_denied"
        assert [tool.index for tool in tools if tool.error_class == "permission_denied"] == [1]
        assert lab.ledger.read_stream(f"fault-{healthy}") == []
    assert {body.rollout_id for body in bodies(lab, FaultInjected)} == set(rollout_ids(lab, 1))


def test_a_label_is_durable_before_what_the_fault_did(collected: Callable[..., Lab]) -> None:
    lab = collected([{"kind": "timeout", "rate": 0.5}, {"kind": "interrupting_user", "rate": 0.5, "message": "hm"}], twin=False)
    lab.ledger.barrier()
    events = lab.ledger.read(limit=10_000)
    position = {(event.stream, event.key): event.position or 0 for event in events}
    asked = {(body.rollout_id, body.index): event.event_id for event in events if isinstance(body := event.body, ModelCallDispatched)}
    position_of = {event.event_id: event.position or 0 for event in events}
    labels = bodies(lab, FaultInjected)
    assert {label.fault for label in labels} == {"timeout", "interrupting_user"}
    for label in labels:
        place, _, at = label.place.partition(":")
        shown = position[f"rollout-{label.rollout_id}", f"tool:{at}"] if place == "call" else position_of[asked[label.rollout_id, int(at)]]
        assert position[label.stream(), label.key()] < shown


def test_a_rollout_is_its_fault_off_twin_until_the_first_fault_and_throughout_when_none_strikes(collected: Callable[..., Lab]) -> None:
    lab = collected(
        [{"kind": "permission_denied", "at": [2]}], [{"kind": "permission_denied", "at": [500]}], [{"kind": "timeout", "rate": 1e-9}]
    )
    seeds = {body.rollout_id: body.seed for body in bodies(lab, RolloutStarted)}
    for healthy, struck, missed, unlucky in zip(*(rollout_ids(lab, n) for n in range(4)), strict=True):
        twin = steps(lab, healthy)
        assert len(twin) > 8
        assert steps(lab, missed) == steps(lab, unlucky) == twin
        assert steps(lab, struck)[:5] == twin[:5]
        assert steps(lab, struck)[5] != twin[5]
        assert len({seeds[name] for name in (healthy, struck, missed, unlucky)}) == 1
    assert {label.rollout_id for label in bodies(lab, FaultInjected)} == set(rollout_ids(lab, 1))


def test_nothing_that_attribution_may_read_changes_with_the_labels(collected: Callable[..., Lab]) -> None:
    lab = collected([{"kind": "timeout", "at": [1]}, {"kind": "interrupting_user", "at": [2], "message": "hm"}])
    stages.verdicts(lab)
    view = AttributionView(lab.ledger)

    def read(rollout_id: str) -> bytes:
        return repr(view.rollout(rollout_id)).encode()

    for rollout_id in (*rollout_ids(lab, 0), *rollout_ids(lab, 1)):
        before, labels = read(rollout_id), len(lab.ledger.read_stream(f"fault-{rollout_id}"))
        more = [FaultInjected(rollout_id=rollout_id, index=labels + n, fault="timeout", place=f"call:{n}") for n in range(3)]
        lab.ledger.append([lab.ledger.new(label) for label in more])
        lab.ledger.barrier()
        assert len(lab.ledger.read_stream(f"fault-{rollout_id}")) == labels + 3
        assert read(rollout_id) == before
        assert b"FaultInjected" not in before and b"plan_id" not in before
    assert any(b"timeout" in read(rollout_id) for rollout_id in rollout_ids(lab, 1))


def test_the_events_of_a_struck_rollout_are_those_of_any_other(collected: Callable[..., Lab]) -> None:
    lab = collected([{"kind": "malformed_result", "at": [1]}])
    view = AttributionView(lab.ledger)
    for healthy, faulty in zip(rollout_ids(lab, 0), rollout_ids(lab, 1), strict=True):
        (one, other) = ([(event.kind, sorted(parse(event.body_bytes))) for event in view.rollout(name)] for name in (healthy, faulty))
        assert one == other
        started = [
            body.model_dump(exclude={"rollout_id", "group_id"})
            for body in bodies(lab, RolloutStarted)
            if body.rollout_id in (healthy, faulty)
        ]
        assert started[0] == started[1]


def test_a_dropped_connection_ends_the_rollout_as_the_worlds_fault_with_its_label(collected: Callable[..., Lab]) -> None:
    lab = collected([{"kind": "dropped_connection", "at": [2]}])
    stages.verdicts(lab)
    stages.rewards(lab)
    for rollout_id in rollout_ids(lab, 1):
        (end,) = bodies(lab, RolloutEnded, rollout_id)
        assert (end.ended_by, end.boundary, end.tool_calls) == ("world_error", "world", 2)
        assert end.detail is not None and lab.ledger.blob(end.detail.blob_id) == b"connection reset by peer"
        assert [(label.fault, label.place) for label in bodies(lab, FaultInjected, rollout_id)] == [("dropped_connection", "call:2")]
    queries.fresh(lab.ledger)
    assert sum(row.counts["env_failed"] for row in queries.outcomes(lab.ledger)) == 2
    assert sorted(str(line.value) for line in queries.rewards(lab.ledger).lines) == ["1.0", "1.0", "None", "None"]


def test_a_slow_answer_counts_as_tool_time_and_reaches_the_declared_limit(collected: Callable[..., Lab]) -> None:
    slow: Faults = [{"kind": "slow_answer", "at": [1], "seconds": 50.0}]
    lab = collected(slow, [{**slow[0], "seconds": 200.0}], harness=HarnessTable(wall_s=100.0))
    for rollout_id in rollout_ids(lab, 1):
        (end,) = bodies(lab, RolloutEnded, rollout_id)
        assert (end.ended_by, end.tool_s is not None and 50 <= end.tool_s < 60) == ("finished", True)
        assert end.wall_s is not None and end.tool_s is not None and end.wall_s >= end.tool_s
        assert bodies(lab, ToolCalled, rollout_id)[1].latency_s >= 50
    assert {end.ended_by for name in rollout_ids(lab, 2) for end in bodies(lab, RolloutEnded, name)} == {"wall_clock"}


def test_an_interruption_is_one_more_user_message_in_the_user_turn_under_way(collected: Callable[..., Lab]) -> None:
    lab = collected([{"kind": "interrupting_user", "at": [2], "message": "Are you still there?"}])
    for healthy, faulty in zip(rollout_ids(lab, 0), rollout_ids(lab, 1), strict=True):
        asked, undisturbed = requests(lab, faulty), requests(lab, healthy)
        assert asked[:2] == undisturbed[:2]
        assert asked[2]["messages"] == [*undisturbed[2]["messages"], {"role": "user", "content": "Are you still there?"}]
        for before, after in pairwise(asked):
            assert after["messages"][: len(before["messages"])] == before["messages"]
        assert {tool.turn for tool in bodies(lab, ToolCalled, faulty)} == {0}
        assert [label.place for label in bodies(lab, FaultInjected, faulty)] == ["step:2"]
    lab.ledger.barrier()
    assert lab.ledger.read(kinds=["HistoryRewritten"]) == []


async def run(lab: Lab, groups: list[Group]) -> None:
    async with lab.site(groups) as site:
        await collect(site, lab.run(), groups, concurrency=2)


async def test_declared_faults_are_the_worlds_legal_behaviour_and_carry_no_label(ledger: LedgerHandle, tmp_path: Path) -> None:
    config = RunConfig(name="t", seed=1, tasks=({"world": "ticket_desk", "count": 1, "seed": 3},), collect=(Collection(policy="oracle"),))
    with Lab(config, ledger, Settings(data_dir=tmp_path)) as lab:
        stages.task_bundles(lab)
        (group,) = lab.groups(config.collect[0])
        declared: Faults = [
            {"kind": "timeout", "at": [1]},
            {"kind": "changing_user", "at": [90], "message": "And be quick.", "spec": {"priority": group.bundle.draft.spec["priority"]}},
        ]
        draft = replace(group.bundle.draft, name="declared", spec={**group.bundle.draft.spec, "faults": declared})
        group = replace(group, bundle=replace(group.bundle, draft=draft))
        seal(ledger, [group.bundle])
        await run(lab, [group])
        (started,) = bodies(lab, RolloutStarted)
        assert [tool.error_class for tool in bodies(lab, ToolCalled)][:2] == [None, "timeout"]
        assert bodies(lab, FaultInjected) == []
        last = requests(lab, started.rollout_id)[-1]["messages"]
        assert [message["content"] for message in last if message["role"] == "user"][1:] == ["And be quick."]
        assert b"changing_user" in b"".join(
            lab.ledger.blob(parse(event.body_bytes)["draft"]["blob_id"])
            for event in AttributionView(ledger).rollout(started.rollout_id)
            if event.kind == "BundleSealed"
        )


def test_planted_faults_that_do_not_fit_a_bundle_are_refused_before_anything_runs(ledger: LedgerHandle, tmp_path: Path) -> None:
    faults = read_plan([{"kind": "changing_user", "at": [2], "message": "x", "spec": {"priority": "P9"}}])
    tasks = ({"world": "ticket_desk", "count": 1, "seed": 3},)
    config = RunConfig(name="t", seed=1, tasks=tasks, collect=(Collection(policy="oracle", faults=faults),))
    with Lab(config, ledger, Settings(data_dir=tmp_path)) as lab, pytest.raises(BundleError, match="priority = 'P9'"):
        stages.rollouts(lab)


def test_a_stray_write_that_cannot_be_stops_the_collection_and_names_itself(collected: Callable[..., Lab]) -> None:
    with pytest.raises(SettingsError, match="/tickets/none/note"):
        collected([{"kind": "corrupted_state", "at": [1], "path": "/tickets/none/note"}], twin=False)


def test_verdicts_are_given_from_the_record_and_again_the_same(collected: Callable[..., Lab]) -> None:
    lab = collected([{"kind": "duplicate_delivery", "rate": 1.0}], [{"kind": "wrong_reset"}])
    given = stages.verdicts(lab).counts["new"]
    assert given == 6 * len(lab.judgings["ticket_desk"])
    assert stages.verdicts(lab).counts["new"] == 0
    own = [body for body in bodies(lab, VerdictGiven) if body.role == "bundle"]
    passed = {body.rollout_id: body.passed for body in own}
    assert [passed[name] for name in rollout_ids(lab, 0)] == [True, True]
    assert [passed[name] for name in rollout_ids(lab, 1)] == [False, False]
    assert {body.status for body in own} == {"completed"}


def test_other_fault_seeds_are_other_groups_and_the_same_plan_collects_nothing_new(collected: Callable[..., Lab]) -> None:
    lab = collected([{"kind": "timeout", "rate": 0.5}], twin=False, size=3)
    assert stages.rollouts(lab).counts["new"] == 0
    group = lab.groups(lab.config.collect[0])[0]
    assert group.plants is not None
    other = replace(group, plants=Plants(group.plants.plan, 99))
    healthy = replace(group, plants=None)
    run = lab.run()
    assert len({run.group_id(group), run.group_id(other), run.group_id(healthy)}) == 3
    assert run.twin_id(group) == run.twin_id(other) == run.twin_id(healthy) == run.group_id(healthy)
    seeds = {label.seed for label in bodies(lab, FaultInjected)}
    assert len(seeds) == len(bodies(lab, FaultInjected)) > 0


def test_a_file_plants_faults(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    head = 'name = "x"\nseed = 1\n[[tasks]]\nworld = "ticket_desk"\ncount = 2\n[[collect]]\npolicy = "oracle"\n'
    path.write_text(
        head + 'fault_seed = 4\nfaults = [{ kind = "timeout", at = [2], seconds = 60.0 }, { kind = "slow_answer", rate = 0.2 }]\n'
    )
    config = read_run_config(path)
    assert config.collect[0].faults == read_plan([{"kind": "timeout", "at": [2], "seconds": 60}, {"kind": "slow_answer", "rate": 0.2}])
    assert RunConfig.model_validate(config.model_dump(mode="json")) == config
    for line, told in (
        ('faults = [{ kind = "flood", rate = 0.2 }]', r"collect\.0\.faults\.0.*flood"),
        ('faults = [{ kind = "timeout", rate = 2 }]', r"collect\.0\.faults\.0\.timeout\.rate.*seen 2"),
        ("faults = []", r"collect\.0\.faults.*at least 1"),
        ("fault_seed = 4", r"collect\.0.*fault_seed 4 seeds nothing"),
    ):
        path.write_text(head + line + "\n")
        with pytest.raises(SettingsError, match=told):
            read_run_config(path)


def test_a_bundle_without_a_spec_of_the_last_wish_makes_no_group(collected: Callable[..., Lab]) -> None:
    lab = collected(twin=True)
    group = lab.groups(lab.config.collect[0])[0]
    bad = replace(group.bundle.draft, spec={**group.bundle.draft.spec, "faults": [{"kind": "seed_ignored"}]})
    with pytest.raises(BundleError, match="declares seed_ignored"):
        replace(group, bundle=Bundle(bad, group.bundle.world_id, group.bundle.verifier_id, group.bundle.harness_id))
