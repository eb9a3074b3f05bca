"""The example worlds: references and equivalent paths pass, wrong ones break exactly what their task says."""

from collections.abc import Sequence
from typing import Any

import pytest

from ledger.bundle import BundleDraft
from training.verifiers import JudgeTask, Verdict
from training.verifiers.end_state import end_state
from training.verifiers.sqlite_conditions import sqlite_conditions
from training.worlds.sqlite import EXAMPLES, SqliteWorld, load_tasks, read_definition
from training.worlds.sqlite.definition import read_tasks
from training.worlds.sqlite.tasks import replayed

WORLDS = {name: SqliteWorld(read_definition(EXAMPLES / name)) for name in ("shop", "hospital")}
TASKS = [task for name, world in WORLDS.items() for task in load_tasks(world, EXAMPLES / name, count=len(read_tasks(EXAMPLES / name)))]


def judged(task: BundleDraft, turns: Sequence[Sequence[Any]]) -> dict[str, Verdict]:
    world = WORLDS[task.initial_state["database"]]
    start = world.reset(task, seed=0)
    end = world.view(replayed(world, start, turns))
    about = JudgeTask(task, world.material)
    return {verify.__name__: verify(world.view(start), end, (), about) for verify in (sqlite_conditions, end_state)}


def broken(verdict: Verdict) -> set[str]:
    assert [condition for condition in verdict.conditions if condition.status == "error"] == []
    return {condition.name for condition in verdict.conditions if condition.status == "failed"}


def test_there_are_two_worlds_with_tools_and_tasks_enough() -> None:
    assert all(6 <= len(world.definition.tools) <= 10 for world in WORLDS.values())
    assert all(sum(task.initial_state["database"] == name for task in TASKS) >= 6 for name in WORLDS)
    assert len({task.name for task in TASKS}) == len(TASKS)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_reference_and_equivalent_paths_pass_both_verifiers(task: BundleDraft) -> None:
    assert task.reference is not None
    for turns in (task.reference["turns"], *(path["turns"] for path in task.reference["equivalent"])):
        assert {name: verdict.passed for name, verdict in judged(task, turns).items()} == {"sqlite_conditions": True, "end_state": True}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_doing_nothing_and_wrong_paths_fail_both_verifiers(task: BundleDraft) -> None:
    assert task.reference is not None and task.reference["wrong"]
    assert {verdict.passed for verdict in judged(task, []).values()} == {False}
    for path in task.reference["wrong"]:
        verdicts = judged(task, path["turns"])
        assert {verdict.passed for verdict in verdicts.values()} == {False}, path["name"]
        assert broken(verdicts["sqlite_conditions"]) == set(path["breaks"]), path["name"]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_every_condition_is_broken_by_some_wrong_path_or_by_doing_nothing(task: BundleDraft) -> None:
    assert task.reference is not None
    seen = broken(judged(task, [])["sqlite_conditions"]) | {name for path in task.reference["wrong"] for name in path["breaks"]}
    assert {condition["name"] for condition in task.spec["conditions"]} <= seen
