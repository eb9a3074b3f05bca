"""A state of a process world is the way to it: replayed, compared with the record, forked, saved."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.bundle import BundleDraft
from ledger.errors import WorldFailed
from training.worlds import Snapshot, ToolCall
from training.worlds.process_host import WorkerProgram
from training.worlds.process_world import ProcessWorld, world_source

ADAPTER = Path(__file__).parent / "tiny_adapter.py"
DRAFT = BundleDraft("t", "tiny", {"turns": [[{"role": "user", "content": "count"}]]}, {"start": 5})


def world_of(*, saves: bool, workers: int = 2) -> ProcessWorld:
    return ProcessWorld("tiny", WorkerProgram(Path(sys.executable), ADAPTER, call_s=10.0), "source", saves=saves, workers=workers)


@pytest.fixture(params=[False, True], ids=["replay", "exact"])
def world(request: pytest.FixtureRequest) -> Iterator[ProcessWorld]:
    made = world_of(saves=request.param)
    yield made
    made.close()


def add(by: int) -> ToolCall:
    return ToolCall("add", {"by": by})


def test_a_call_leaves_the_state_that_it_was_made_in(world: ProcessWorld) -> None:
    start = world.reset(DRAFT, seed=3)
    first, seen = world.call(start, add(1))
    again, seen_again = world.call(start, add(1))
    assert world.view(first)["count"] == world.view(start)["count"] + 1
    assert (first, seen.content) == (again, seen_again.content)
    assert [change.path for change in world.diff(start, first).changes] == ["/count"]


def test_the_seed_of_the_rollout_counts_unless_the_task_has_its_own(world: ProcessWorld) -> None:
    assert world.reset(DRAFT, seed=3) == world.reset(DRAFT, seed=3)
    assert world.digest(world.reset(DRAFT, seed=3)) != world.digest(world.reset(DRAFT, seed=4))
    own = replace(DRAFT, initial_state={"start": 5, "seed": 9})
    assert world.digest(world.reset(own, seed=3)) == world.digest(world.reset(own, seed=4)) == world.digest(world.reset(DRAFT, seed=9))


def test_a_snapshot_restores_in_another_process_and_forks_go_their_own_ways(world: ProcessWorld) -> None:
    state = world.reset(DRAFT, seed=3)
    for by in (1, 2, 3):
        state, _ = world.call(state, add(by))
    rest = world.snapshot(state)
    assert rest.snapshot_id == world.digest(state)
    fresh = world_of(saves=world.fidelity == "exact")
    restored = fresh.restore(rest)
    assert (fresh.digest(restored), fresh.view(restored)) == (rest.snapshot_id, world.view(state))
    left, right = fresh.fork(rest, 2)
    assert fresh.view(fresh.call(left, add(10))[0])["count"] == world.view(state)["count"] + 10
    assert fresh.view(fresh.call(right, add(20))[0])["count"] == world.view(state)["count"] + 20
    assert fresh.snapshot(restored).snapshot_id == rest.snapshot_id
    fresh.close()


def test_only_a_world_that_saves_itself_is_exact_and_its_snapshot_has_no_way() -> None:
    for saves, fidelity, steps in ((False, "replay", 1), (True, "exact", 0)):
        world = world_of(saves=saves)
        state, _ = world.call(world.reset(DRAFT, seed=1), add(1))
        assert world.fidelity == fidelity
        assert len(json.loads(world.snapshot(state).data)["steps"]) == steps
        world.close()


def test_an_environment_that_comes_out_otherwise_is_a_failure_of_the_world() -> None:
    world = world_of(saves=False, workers=1)
    state, _ = world.call(world.reset(DRAFT, seed=1), ToolCall("noise", {}))
    world.call(state, add(1))
    with pytest.raises(WorldFailed, match=r"replaying step 0 \(noise\) gave digest .* the environment is not deterministic"):
        world.call(state, add(2))
    with pytest.raises(WorldFailed, match="not deterministic"):
        world.restore(world.snapshot(state))
    world.close()


def test_a_foreign_snapshot_is_refused(world: ProcessWorld) -> None:
    rest = world.snapshot(world.reset(DRAFT, seed=3))
    with pytest.raises(WorldFailed, match="no snapshot of a process world"):
        world.restore(Snapshot(rest.snapshot_id, b"{}"))
    with pytest.raises(WorldFailed, match="its id is 00"):
        world.restore(Snapshot("00", rest.data))


def test_a_worker_that_stands_at_the_state_is_used_and_nothing_replayed() -> None:
    world = world_of(saves=False)
    state = world.reset(DRAFT, seed=1)
    for _ in range(5):
        state, _ = world.call(state, add(1))
    assert len(world.worker_pids) == 1
    state, _ = world.call(state, ToolCall("noise", {}))
    world.call(state, add(1))
    world.close()


def test_a_crash_is_a_world_failure_and_the_state_lives_on(world: ProcessWorld) -> None:
    state, _ = world.call(world.reset(DRAFT, seed=1), add(1))
    with pytest.raises(WorldFailed, match="ZeroDivisionError"):
        world.call(state, ToolCall("divide", {}))
    assert world.view(world.call(state, add(1))[0])["count"] == world.view(state)["count"] + 1


def test_text_and_arguments_that_have_no_canonical_form_do_not_pass(world: ProcessWorld) -> None:
    state = world.reset(DRAFT, seed=1)
    same, refused = world.call(state, ToolCall("add", {"by": float("nan")}))
    assert (same is state, refused.error_class) == (True, "malformed_arguments")
    assert world.call(state, ToolCall("half_a_character", {}))[1].content == "\\ud800"


def test_a_version_depends_on_files_packages_and_options(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    first = world_source(tmp_path, "p==1\n", {})
    assert "x = 1" in first
    assert world_source(tmp_path, "p==2\n", {}) != first != world_source(tmp_path, "p==1\n", {"o": 1})
