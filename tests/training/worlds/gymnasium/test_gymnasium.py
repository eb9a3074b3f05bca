"""Real Gymnasium in its own environment: actions, ends, seeds, references that hold, refusals that touch nothing."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ledger.bundle import BundleDraft
from ledger.errors import BundleError, SettingsError, VenvFailed, WorldFailed
from ledger.settings import Settings
from training.verifiers import JudgeTask, Verdict
from training.verifiers.environment_reward import environment_reward
from training.worlds import ToolCall
from training.worlds.gymnasium import SOURCE, Gymnasium, open_gymnasium
from training.worlds.process_world import ProcessState
from training.worlds.source import TaskQuery


@pytest.fixture(scope="module")
def world() -> Iterator[Gymnasium]:
    try:
        made = open_gymnasium(Settings(), {})
    except VenvFailed as error:
        pytest.skip(f"gymnasium cannot be installed here: {error}")
    yield made
    made.close()


def tasks(world: Gymnasium, env_id: str, count: int = 1, **options: Any) -> list[BundleDraft]:
    return list(SOURCE.tasks(world, TaskQuery(count, 7, {"env_id": env_id, **options}), Settings()))


def walked(world: Gymnasium, draft: BundleDraft, calls: list[dict[str, Any]]) -> ProcessState:
    state = world.reset(draft, seed=0)
    for call in calls:
        state, observation = world.call(state, ToolCall(call["name"], call["arguments"]))
        assert observation.error_class is None
    return state


def judged(world: Gymnasium, draft: BundleDraft, calls: list[dict[str, Any]]) -> Verdict:
    return environment_reward(None, world.view(walked(world, draft, calls)), (), JudgeTask(draft, world.material))


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("FrozenLake-v1", {"kwargs": {"map_size": 4}}),
        ("FrozenLake-v1", {"kwargs": {"map_size": 4, "is_slippery": False}}),
        ("CliffWalking-v1", {}),
        ("Taxi-v4", {}),
        ("Blackjack-v1", {}),
    ],
)
def test_references_and_equivalents_pass_and_wrong_ways_break_what_they_name(
    world: Gymnasium, env_id: str, options: dict[str, Any]
) -> None:
    (draft,) = tasks(world, env_id, **options)
    assert draft.reference is not None
    assert judged(world, draft, draft.reference["turns"][0]).passed is True
    for other in draft.reference["equivalent"]:
        assert judged(world, draft, other["turns"][0]).passed is True
    assert draft.reference["wrong"]
    for wrong in draft.reference["wrong"]:
        verdict = judged(world, draft, wrong["turns"][0])
        assert verdict.passed is False
        assert set(wrong["breaks"]) <= {condition.name for condition in verdict.conditions if condition.status == "failed"}


def test_tasks_of_one_query_differ_and_come_out_the_same_again(world: Gymnasium) -> None:
    drafts = tasks(world, "FrozenLake-v1", 3, kwargs={"map_size": 4})
    assert len({draft.request["turns"][0][0]["content"] for draft in drafts}) == 3
    assert drafts == tasks(world, "FrozenLake-v1", 3, kwargs={"map_size": 4})
    with pytest.raises(BundleError, match="the 20 seeds up to 27 have no return of 1 or repeat a task; 1 tasks found, asked for 2"):
        tasks(world, "FrozenLake-v1", 2, kwargs={"is_slippery": False})


def test_a_policy_sees_text_without_escapes_and_the_view_shows_what_it_does_not_see(world: Gymnasium) -> None:
    (draft,) = tasks(world, "Blackjack-v1")
    (lake,) = tasks(world, "FrozenLake-v1", kwargs={"map_size": 4})
    assert "\x1b" not in lake.request["turns"][0][0]["content"]
    assert "[S]" in lake.request["turns"][0][0]["content"]
    hidden = world.view(world.reset(draft, seed=0))["environment"]["state"]["dealer"]
    assert len(hidden) == 2
    assert world.tools(lake, turn=0)[0]["function"]["parameters"]["properties"]["action"]["enum"] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "arguments", "error_class"),
    [
        ("jump", {"action": 0}, "unknown_tool"),
        ("step", {"action": 4}, "invalid_arguments"),
        ("step", {"action": True}, "invalid_arguments"),
        ("step", {"action": "1"}, "invalid_arguments"),
        ("step", {"action": 1, "twice": True}, "invalid_arguments"),
        ("step", {}, "invalid_arguments"),
    ],
)
def test_a_refused_call_changes_nothing(world: Gymnasium, name: str, arguments: dict[str, Any], error_class: str) -> None:
    (draft,) = tasks(world, "FrozenLake-v1", kwargs={"map_size": 4})
    start = world.reset(draft, seed=0)
    after, observation = world.call(start, ToolCall(name, arguments))
    assert observation.error_class == error_class
    assert world.digest(after) == world.digest(start)


def test_after_the_end_nothing_more_happens_and_a_time_limit_is_no_end_of_its_own(world: Gymnasium) -> None:
    (draft,) = tasks(world, "FrozenLake-v1", kwargs={"map_size": 4, "is_slippery": False}, max_steps=8)
    end = walked(world, draft, [{"name": "step", "arguments": {"action": 0}}] * 8)
    assert world.view(end)["episode"]["truncated"]
    assert world.call(end, ToolCall("step", {"action": 0}))[1].error_class == "tool_error"
    verdict = environment_reward(None, world.view(end), (), JudgeTask(draft, world.material))
    assert [(condition.name, condition.status) for condition in verdict.conditions] == [("terminal", "failed"), ("reward", "failed")]


def test_snapshots_replay_in_another_process_and_forks_of_a_chance_world_agree(world: Gymnasium) -> None:
    (draft,) = tasks(world, "FrozenLake-v1", kwargs={"map_size": 4})
    assert draft.reference is not None
    state = walked(world, draft, draft.reference["turns"][0][:3])
    other = open_gymnasium(Settings(), {})
    left, right = other.fork(world.snapshot(state), 2)
    assert other.call(left, ToolCall("step", {"action": 2}))[0] == other.call(right, ToolCall("step", {"action": 2}))[0]
    assert world.fidelity == "replay"
    other.close()


def test_what_cannot_be_a_task_is_refused(world: Gymnasium) -> None:
    with pytest.raises(SettingsError, match="takes no option 'envid'"):
        SOURCE.tasks(world, TaskQuery(1, 7, {"envid": "Taxi-v4"}), Settings())
    with pytest.raises(WorldFailed, match="NameNotFound"):
        tasks(world, "Nothing-v0")


def test_an_experiment_of_scripted_policies_is_judged_by_the_environments_reward(outcomes: Callable[..., Any], world: Gymnasium) -> None:
    options = {"env_id": "FrozenLake-v1", "kwargs": {"map_size": 4}}
    policies = ("oracle", "other_path", "goes_wrong", "drops_last_call", "gives_up")
    seen = outcomes("gymnasium", policies, options=options)
    assert seen == {policy: [policy in ("oracle", "other_path")] * 2 for policy in policies}
