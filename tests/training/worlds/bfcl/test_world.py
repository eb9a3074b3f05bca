"""States are values: deterministic, restorable, comparable, and untouched by what a policy writes into its arguments."""

import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ledger.bundle import BundleDraft
from ledger.canonical import digest
from ledger.errors import WorldFailed
from training.worlds import Change, Snapshot, ToolCall, World
from training.worlds.bfcl import Bfcl, BfclState, oracle, replay, with_end_state, wrong
from training.worlds.bfcl.pool import Workers
from training.worlds.reference_scripts import reference_turns

_HANG = ToolCall("power", {"base": 7, "exponent": 10**9})


def test_two_replays_in_two_worlds_give_equal_digests_and_observations(unpacked: Path, drafts: dict[str, BundleDraft], world: Bfcl) -> None:
    other = Bfcl(unpacked, workers=1)
    try:
        for name in [f"multi_turn_base_{number}" for number in range(5, 200, 15)] + ["multi_turn_long_context_103"]:
            first = replay(world, drafts[name], reference_turns(drafts[name]))
            second = replay(other, drafts[name], reference_turns(drafts[name]))
            assert first.end.digest == second.end.digest
            assert first.trace == second.trace
    finally:
        other.close()


def test_a_call_leaves_the_state_it_was_made_on_unchanged(drafts: dict[str, BundleDraft], world: World[BfclState]) -> None:
    before = world.reset(drafts["multi_turn_base_0"], seed=0)
    seen = world.digest(before)
    after, observation = world.call(before, ToolCall("mkdir", {"dir_name": "new"}))
    assert observation.error_class is None
    assert world.digest(before) == seen != world.digest(after)
    assert world.digest(after) == digest(world.view(after), allow_nul=True)


def test_a_diff_names_the_leaf_that_changed(drafts: dict[str, BundleDraft], world: Bfcl) -> None:
    before = world.reset(drafts["multi_turn_base_0"], seed=0)
    after, _ = world.call(before, ToolCall("cd", {"folder": "document"}))
    after, _ = world.call(after, ToolCall("touch", {"file_name": "n.txt"}))
    place = "/GorillaFileSystem/root/contents/document/contents/n.txt"
    assert world.diff(before, after).changes == (
        Change("/GorillaFileSystem/_current_dir/1", None, "document"),
        Change(place, None, {"content": "", "file": "n.txt"}),
    )
    assert world.diff(before, before).changes == ()


def test_a_restored_state_has_its_snapshots_id_and_forks_go_their_own_ways(drafts: dict[str, BundleDraft], world: Bfcl) -> None:
    draft = drafts["multi_turn_base_100"]
    middle = replay(world, draft, reference_turns(draft)[:1]).end
    snapshot = world.snapshot(middle)
    assert world.restore(snapshot).digest == snapshot.snapshot_id
    left, right = world.fork(snapshot, 2)
    moved, _ = world.call(left, ToolCall("trading_logout", {}))
    assert moved.digest != right.digest == snapshot.snapshot_id


def test_a_fork_continues_the_random_stream_where_the_state_left_it(drafts: dict[str, BundleDraft], world: Bfcl) -> None:
    state = world.reset(drafts["multi_turn_base_50"], seed=0)
    state, _ = world.call(state, ToolCall("displayCarStatus", {"option": "climate"}))
    once, first = world.call(state, ToolCall("get_current_speed", {}))
    again, second = world.call(world.restore(world.snapshot(state)), ToolCall("get_current_speed", {}))
    _, third = world.call(once, ToolCall("get_current_speed", {}))
    assert first == second != third
    assert once.digest == again.digest != state.digest
    assert world.material(world.view(once)) == world.material(world.view(state))


def test_a_snapshot_that_carries_code_is_refused_and_the_code_does_not_run(world: Bfcl, tmp_path: Path) -> None:
    mark = tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {mark}",)

    with pytest.raises(WorldFailed, match="which no state of this world holds"):
        world.restore(Snapshot("0" * 64, pickle.dumps({"GorillaFileSystem": Evil()})))
    assert not mark.exists()


def test_a_snapshot_with_another_id_is_refused(drafts: dict[str, BundleDraft], world: Bfcl) -> None:
    state = world.reset(drafts["multi_turn_base_0"], seed=0)
    with pytest.raises(WorldFailed, match="its id is"):
        world.restore(Snapshot("0" * 64, state.data))


@pytest.mark.parametrize(
    ("call", "error_class"),
    [
        (ToolCall("exec", {"source": "1"}), "unknown_tool"),
        (ToolCall("_load_scenario", {"scenario": {}}), "unknown_tool"),
        (ToolCall("__class__", {}), "unknown_tool"),
        (ToolCall("logarithm", {"value": 2, "base": 2, "precision": 3}), "unknown_tool"),
        (ToolCall("cd", {"directory": "x"}), "invalid_arguments"),
        (ToolCall("cd", {}), "invalid_arguments"),
        (ToolCall("cd", {"folder": 3}), "tool_error"),
        (ToolCall("cd", {"folder": "nowhere"}), "tool_error"),
        (ToolCall("cd", {"folder": float("nan")}), "malformed_arguments"),
        (ToolCall("cd", {"folder": "\ud800"}), "malformed_arguments"),
    ],
)
def test_a_policys_mistake_is_an_observation_with_its_class(
    call: ToolCall, error_class: str, drafts: dict[str, BundleDraft], world: Bfcl
) -> None:
    state = world.reset(drafts["multi_turn_base_0"], seed=0)
    after, observation = world.call(state, call)
    assert observation.error_class == error_class
    assert after.digest == state.digest


def test_code_in_an_argument_is_text(drafts: dict[str, BundleDraft], world: Bfcl, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    state = world.reset(drafts["multi_turn_base_0"], seed=0)
    state, _ = world.call(state, ToolCall("touch", {"file_name": "f"}))
    for text in (f"'); __import__('os').system('touch {mark}'); ('", f"$(touch {mark})", f"x; touch {mark}", "x\x00y"):
        state, _ = world.call(state, ToolCall("echo", {"content": text, "file_name": "f"}))
        content = world.view(state)["GorillaFileSystem"]["root"]["contents"]["f"]["content"]
        assert content == text
    assert not mark.exists()


def test_code_that_reaches_the_wheels_own_eval_can_start_nothing_and_write_nothing(unpacked: Path, tmp_path: Path) -> None:
    marks = [tmp_path / "system", tmp_path / "open"]
    workers = Workers(unpacked, count=1)
    try:
        calls = [f"__import__('os').system('touch {marks[0]}')", f"open({str(marks[1])!r}, 'w')", "ls()"]
        request = {
            "op": "check",
            "entry": "multi_turn_base_0",
            "classes": ["GorillaFileSystem"],
            "config": {},
            "model": [[calls]],
            "reference": [["ls()"]],
        }
        outputs = workers.ask(request)["turns"][0]["outputs"]
    finally:
        workers.close()
    assert outputs[:2] == ["Error during execution: os.system is not allowed here", "Error during execution: open is not allowed here"]
    assert not any(mark.exists() for mark in marks)


def test_a_call_that_never_ends_is_a_world_failure_and_the_next_call_works(unpacked: Path, drafts: dict[str, BundleDraft]) -> None:
    world = Bfcl(unpacked, workers=1, limit_s=1.0)
    try:
        state = world.reset(_with_math(drafts), seed=0)
        with pytest.raises(WorldFailed, match="time limit of 1 s"):
            world.call(state, _HANG)
        assert world.call(state, ToolCall("power", {"base": 7, "exponent": 2}))[1].content == '{"result": 49}'
    finally:
        world.close()


def test_a_worker_killed_during_a_call_is_a_world_failure_and_the_next_call_gets_another(
    unpacked: Path, drafts: dict[str, BundleDraft]
) -> None:
    world = Bfcl(unpacked, workers=1, limit_s=30.0)
    try:
        state = world.reset(_with_math(drafts), seed=0)
        (first,) = world.worker_pids
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(world.call, state, _HANG)
            time.sleep(0.3)
            os.kill(first, 9)
            with pytest.raises(WorldFailed, match="worker"):
                running.result(timeout=20)
        assert world.call(state, ToolCall("power", {"base": 7, "exponent": 2}))[1].content == '{"result": 49}'
        assert world.worker_pids != [first]
    finally:
        world.close()


def test_an_idle_worker_that_was_killed_is_replaced_without_a_failure(unpacked: Path, drafts: dict[str, BundleDraft]) -> None:
    world = Bfcl(unpacked, workers=1)
    try:
        state = world.reset(drafts["multi_turn_base_0"], seed=0)
        os.kill(world.worker_pids[0], 9)
        time.sleep(0.1)
        assert world.call(state, ToolCall("pwd", {}))[1].error_class is None
    finally:
        world.close()


def test_a_closed_world_fails_and_leaves_no_process(unpacked: Path, drafts: dict[str, BundleDraft]) -> None:
    world = Bfcl(unpacked, workers=1)
    world.reset(drafts["multi_turn_base_0"], seed=0)
    world.close()
    assert world.worker_pids == []
    with pytest.raises(WorldFailed, match="closed"):
        world.reset(drafts["multi_turn_base_0"], seed=0)


def test_concurrent_rollouts_end_as_they_do_alone(drafts: dict[str, BundleDraft], world: Bfcl) -> None:
    chosen = [drafts[f"multi_turn_base_{number}"] for number in (0, 50, 100, 150)]
    alone = [replay(world, draft, reference_turns(draft)).end.digest for draft in chosen]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda draft: replay(world, draft, reference_turns(draft)).end.digest, chosen * 2))
    assert together == alone * 2


def test_the_version_follows_the_source_and_the_offered_descriptions(unpacked: Path, world: Bfcl) -> None:
    brief = Bfcl(unpacked, brief=True)
    assert world.version == Bfcl(unpacked).version != brief.version
    assert "bfcl-eval==2026.3.23" in world.source


def test_the_oracle_ends_every_user_turn_with_a_text_and_the_end_state_is_the_replays(drafts: dict[str, BundleDraft], world: Bfcl) -> None:
    draft = with_end_state(drafts["multi_turn_miss_func_0"], world)
    answers = oracle(draft)
    assert draft.reference is not None
    assert [answer.content is not None for answer in answers].count(True) == len(draft.request["turns"])
    assert sum(len(answer.tool_calls) for answer in answers) == sum(len(calls) for calls in draft.reference["turns"])
    end = replay(world, draft, reference_turns(draft)).end
    assert draft.reference["end_state"] == world.material(world.view(end))


def test_wrong_policies_differ_from_the_oracle_and_none_is_made_for_a_task_that_changes_nothing(
    drafts: dict[str, BundleDraft], world: Bfcl
) -> None:
    made = wrong(drafts["multi_turn_base_0"], world)
    assert set(made) == {"drop_call", "change_argument"}
    assert all(script != oracle(drafts["multi_turn_base_0"]) for script in made.values())
    assert "drop_call" not in wrong(drafts["multi_turn_base_13"], world)


def _with_math(drafts: dict[str, BundleDraft]) -> BundleDraft:
    return next(draft for draft in drafts.values() if "MathAPI" in draft.initial_state["classes"])
