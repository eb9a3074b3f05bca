"""What every world promises, checked on each of them; a new world is one more line in `WORLDS`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ledger.bundle import BundleDraft
from ledger.canonical import digest
from ledger.errors import DownloadFailed
from ledger.settings import Settings
from training.worlds import Snapshot, ToolCall, World
from training.worlds.asynchronous import AsyncView, SyncView
from training.worlds.fault_plan import read_plan
from training.worlds.faults import FaultyWorld
from training.worlds.source import TaskQuery, source_of


@dataclass(frozen=True)
class Subject:
    """A world under test.

    Attributes:
        source: its kind.
        options: of its opening and its tasks.
        wrong_call: a call that its schema refuses.
    """

    source: str
    wrong_call: ToolCall
    options: dict[str, Any] = field(default_factory=dict)


WORLDS = {
    "ticket_desk": Subject("ticket_desk", ToolCall("get_owner", {"owner": 1})),
    "bfcl": Subject("bfcl", ToolCall("cd", {"directory": "x"})),
}
VIEWS = ("itself", "through_both_views", "with_no_fault_near")


@dataclass(frozen=True)
class Open:
    """An opened world with a task of its own and the calls that solve it."""

    name: str
    world: World[Any]
    draft: BundleDraft
    calls: tuple[ToolCall, ...]
    wrong_call: ToolCall

    def start(self) -> Any:
        """The task's initial state."""
        return self.world.reset(self.draft, seed=7)

    def after(self, count: int) -> Any:
        """The state after the first so many calls."""
        return reduce(lambda state, call: self.world.call(state, call)[0], self.calls[:count], self.start())


def opened(name: str) -> tuple[World[Any], BundleDraft]:
    """A world of the list and its first task."""
    subject = WORLDS[name]
    source, settings = source_of(subject.source), Settings()
    world = source.open(settings, {key: subject.options[key] for key in source.opening if key in subject.options})
    return world, source.tasks(world, TaskQuery(1, 7, subject.options), settings)[0]


def reference(draft: BundleDraft) -> tuple[ToolCall, ...]:
    """The calls of a task's reference."""
    assert draft.reference is not None
    return tuple(ToolCall(call["name"], call["arguments"]) for turn in draft.reference["turns"] for call in turn)


@pytest.fixture(scope="module", params=[(name, view) for name in WORLDS for view in VIEWS], ids=lambda param: "-".join(param))
def subject(request: pytest.FixtureRequest) -> Iterator[Open]:
    name, view = request.param
    try:
        world, draft = opened(name)
    except DownloadFailed as error:
        pytest.skip(f"{name} cannot be opened here: {error}")
    shown: World[Any] = world
    if view == "with_no_fault_near":
        plan = read_plan([{"kind": "timeout", "at": [1000]}, {"kind": "duplicate_delivery", "rate": 1e-12}])
        shown = FaultyWorld(world, plan, key=(1, "r"))
    with ThreadPoolExecutor(2) as pool:
        if view == "through_both_views":
            shown = SyncView(AsyncView(world, pool))
        yield Open(name, shown, draft, reference(draft), WORLDS[name].wrong_call)
        if isinstance(shown, SyncView):
            shown.close()
    getattr(world, "close", lambda: None)()


def test_a_call_leaves_the_given_state_unchanged(subject: Open) -> None:
    state = subject.start()
    for call in subject.calls:
        before, view = subject.world.digest(state), json.dumps(subject.world.view(state), sort_keys=True)
        after, _ = subject.world.call(state, call)
        assert (subject.world.digest(state), json.dumps(subject.world.view(state), sort_keys=True)) == (before, view)
        state = after
    assert subject.world.material(subject.world.view(state)) != subject.world.material(subject.world.view(subject.start()))


def test_the_same_call_on_the_same_state_gives_the_same_state_and_answer(subject: Open) -> None:
    state = subject.after(1)
    for call in subject.calls[1:3]:
        (one, said), (other, again) = subject.world.call(state, call), subject.world.call(state, call)
        assert (subject.world.digest(one), said) == (subject.world.digest(other), again)


def test_a_digest_is_over_the_canonical_view_and_names_the_snapshot(subject: Open) -> None:
    state = subject.after(2)
    assert subject.world.digest(state) == digest(subject.world.view(state), allow_nul=True) == subject.world.snapshot(state).snapshot_id


def test_a_restored_state_has_its_snapshots_digest_and_goes_on_alike(subject: Open) -> None:
    state = subject.after(1)
    snapshot = subject.world.snapshot(state)
    restored = subject.world.restore(Snapshot(snapshot.snapshot_id, bytes(snapshot.data)))
    assert subject.world.digest(restored) == snapshot.snapshot_id
    for call in subject.calls[1:]:
        (state, said), (restored, again) = subject.world.call(state, call), subject.world.call(restored, call)
        assert said == again
    assert subject.world.digest(restored) == subject.world.digest(state)


def test_forks_are_as_many_as_asked_equal_and_go_their_own_ways(subject: Open) -> None:
    snapshot = subject.world.snapshot(subject.start())
    assert subject.world.fork(snapshot, 0) == []
    forks = subject.world.fork(snapshot, 3)
    assert [subject.world.digest(fork) for fork in forks] == [snapshot.snapshot_id] * 3
    moved = reduce(lambda state, call: subject.world.call(state, call)[0], subject.calls, forks[0])
    assert subject.world.digest(moved) != snapshot.snapshot_id
    assert [subject.world.digest(fork) for fork in forks] == [snapshot.snapshot_id] * 3


def test_a_state_does_not_differ_from_itself_and_a_diff_names_the_same_places_both_ways(subject: Open) -> None:
    start, end = subject.start(), subject.after(len(subject.calls))
    assert subject.world.diff(start, subject.start()).changes == ()
    there, back = subject.world.diff(start, end).changes, subject.world.diff(end, start).changes
    assert there
    assert [(change.path, change.before, change.after) for change in there] == [(c.path, c.after, c.before) for c in back]
    assert [change.path for change in there] == sorted(change.path for change in there)


def test_the_same_seed_resets_alike(subject: Open) -> None:
    assert subject.world.digest(subject.start()) == subject.world.digest(subject.start())


def test_tools_are_valid_json_schema_with_names_of_their_own(subject: Open) -> None:
    for turn in range(len(subject.draft.request["turns"])):
        tools = subject.world.tools(subject.draft, turn=turn)
        names = [tool["function"]["name"] for tool in tools]
        assert len(set(names)) == len(names) > 0
        for tool in tools:
            assert tool["type"] == "function"
            Draft202012Validator.check_schema(tool["function"]["parameters"])
            assert tool["function"]["parameters"]["type"] == "object"
    assert {call.name for call in subject.calls} <= set(names)


def test_a_policys_mistake_has_a_class_and_changes_nothing_material(subject: Open) -> None:
    state = subject.after(1)
    material = subject.world.material(subject.world.view(state))
    for call, allowed in (
        (ToolCall("no_such_tool", {}), ("unknown_tool",)),
        (subject.wrong_call, ("invalid_arguments",)),
        (ToolCall(subject.wrong_call.name, {"x": float("nan")}), ("invalid_arguments", "malformed_arguments")),
        (ToolCall(subject.wrong_call.name, {"\ud800": "\ud800"}), ("invalid_arguments", "malformed_arguments")),
    ):
        after, observation = subject.world.call(state, call)
        assert observation.error_class in allowed
        assert observation.content
        assert subject.world.material(subject.world.view(after)) == material


def test_faults_strike_every_world_alike(subject: Open) -> None:
    stray = {"name": subject.calls[0].name, "arguments": dict(subject.calls[0].arguments)}
    plan = read_plan([{"kind": "timeout", "at": [1]}, {"kind": "corrupted_state", "at": [2], "call": stray}])
    world = FaultyWorld(subject.world, plan, key=(1, "r"))
    state, healthy = world.reset(subject.draft, seed=7), subject.start()
    (state, said), (healthy, expected) = world.call(state, subject.calls[0]), subject.world.call(healthy, subject.calls[0])
    assert (said, world.digest(state)) == (expected, subject.world.digest(healthy))
    after, said = world.call(state, subject.calls[1])
    assert (said.error_class, world.digest(after)) == ("timeout", world.digest(state))
    after, said = world.call(after, subject.calls[2])
    written, _ = subject.world.call(healthy, subject.calls[0])
    written, expected = subject.world.call(written, subject.calls[2])
    assert (said, world.digest(after)) == (expected, subject.world.digest(written))


def test_a_world_says_which_it_is(subject: Open) -> None:
    assert (subject.world.name, subject.world.fidelity in ("exact", "replay")) == (subject.draft.world, True)
    assert len(subject.world.version) == 64 and subject.world.source


ELSEWHERE = """
import sys
from tests.training.worlds.test_world_contract import digests
print(*digests(sys.argv[1]))
"""


def digests(name: str) -> list[str]:
    """Digests of the states on the way through a task's reference, and of what was answered."""
    world, draft = opened(name)
    state = world.reset(draft, seed=7)
    found = [world.version, world.digest(state)]
    for call in reference(draft):
        state, observation = world.call(state, call)
        found += [world.digest(state), digest([observation.content, observation.error_class])]
    getattr(world, "close", lambda: None)()
    return found


@pytest.mark.parametrize("name", WORLDS)
def test_digests_and_answers_are_the_same_in_another_process_with_another_hash_seed(name: str) -> None:
    try:
        here = digests(name)
    except DownloadFailed as error:
        pytest.skip(f"{name} cannot be opened here: {error}")
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "TZ": "Asia/Kathmandu"}
    there = subprocess.run([sys.executable, "-c", ELSEWHERE, name], env=environment, capture_output=True, text=True, timeout=120)
    assert there.returncode == 0, there.stderr[-2000:]
    assert there.stdout.split() == here
