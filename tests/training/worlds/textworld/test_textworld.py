"""Real TextWorld in its own environment: games by seed, walkthroughs that win, commands that never reach the interpreter."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from ledger.bundle import BundleDraft
from ledger.errors import SettingsError, VenvFailed, WorldFailed
from ledger.settings import Settings
from training.verifiers import JudgeTask
from training.verifiers.environment_reward import environment_reward
from training.worlds import ToolCall
from training.worlds.source import TaskQuery
from training.worlds.textworld import SOURCE, TextWorld, open_textworld

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def world() -> Iterator[TextWorld]:
    try:
        made = open_textworld(Settings(), {})
    except VenvFailed as error:
        pytest.skip(f"textworld cannot be installed here: {error}")
    yield made
    made.close()


@pytest.fixture(scope="module")
def drafts(world: TextWorld) -> list[BundleDraft]:
    return list(SOURCE.tasks(world, TaskQuery(2, 7), Settings()))


def passed(world: TextWorld, draft: BundleDraft, calls: list[dict[str, Any]]) -> dict[str, str]:
    state = world.reset(draft, seed=0)
    for call in calls:
        state, _ = world.call(state, ToolCall(call["name"], call["arguments"]))
    verdict = environment_reward(None, world.view(state), (), JudgeTask(draft, world.material))
    return {condition.name: condition.status for condition in verdict.conditions}


def test_the_walkthrough_and_a_detour_win_and_a_shorter_one_does_not(world: TextWorld, drafts: list[BundleDraft]) -> None:
    for draft in drafts:
        assert draft.reference is not None
        for turns in (draft.reference["turns"], draft.reference["equivalent"][0]["turns"]):
            assert set(passed(world, draft, turns[0]).values()) == {"passed"}
        early = passed(world, draft, draft.reference["wrong"][0]["turns"][0])
        assert {name for name, status in early.items() if status == "failed"} >= {"terminal", "goal"}


def test_a_seed_gives_the_same_game_another_seed_another(world: TextWorld, drafts: list[BundleDraft]) -> None:
    assert drafts == list(SOURCE.tasks(world, TaskQuery(2, 7), Settings()))
    assert drafts[0].initial_state["game"] != drafts[1].initial_state["game"]
    forged = replace(drafts[0], initial_state={**drafts[0].initial_state, "game": "0" * 64})
    with pytest.raises(WorldFailed, match="has digest .* the task's is 0000"):
        world.reset(forged, seed=0)


@pytest.mark.parametrize("text", ["quit", "look. save", "look then RESTART", "undo", "look\ninventory", "", " ", "ö", "x" * 101, 7])
def test_what_would_reach_the_interpreter_is_refused_and_changes_nothing(world: TextWorld, drafts: list[BundleDraft], text: Any) -> None:
    start = world.reset(drafts[0], seed=0)
    after, observation = world.call(start, ToolCall("command", {"text": text}))
    assert observation.error_class == "invalid_arguments"
    assert world.digest(after) == world.digest(start)


def test_snapshots_replay_in_another_process(world: TextWorld, drafts: list[BundleDraft]) -> None:
    assert drafts[0].reference is not None
    state = world.reset(drafts[0], seed=0)
    for call in drafts[0].reference["turns"][0][:2]:
        state, _ = world.call(state, ToolCall(call["name"], call["arguments"]))
    other = open_textworld(Settings(), {})
    restored = other.restore(world.snapshot(state))
    assert other.view(restored) == world.view(state)
    other.close()


def test_the_limit_of_commands_ends_the_game_without_an_end_of_its_own(world: TextWorld) -> None:
    (draft,) = SOURCE.tasks(world, TaskQuery(1, 7, {"max_steps": 6, "admissible": False}), Settings())
    state = world.reset(draft, seed=0)
    for _ in range(6):
        state, seen = world.call(state, ToolCall("command", {"text": "look"}))
    assert "Commands:" not in draft.request["turns"][0][0]["content"]
    assert seen.content.endswith("The game is over.")
    assert world.view(state)["episode"]["truncated"]
    assert world.call(state, ToolCall("command", {"text": "look"}))[1].error_class == "tool_error"


def test_unknown_and_impossible_options_are_refused(world: TextWorld) -> None:
    with pytest.raises(SettingsError, match="takes no option 'room'"):
        SOURCE.tasks(world, TaskQuery(1, 7, {"room": 3}), Settings())
    with pytest.raises(SettingsError, match="option rooms of world 'textworld' is 0"):
        SOURCE.tasks(world, TaskQuery(1, 7, {"rooms": 0}), Settings())


def test_an_experiment_of_scripted_policies_is_judged_by_the_game(outcomes: Callable[..., Any], world: TextWorld) -> None:
    seen = outcomes("textworld", ("oracle", "other_path", "drops_last_call", "gives_up"))
    assert seen == {"oracle": [True, True], "other_path": [True, True], "drops_last_call": [False, False], "gives_up": [False, False]}
