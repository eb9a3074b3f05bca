"""Real verifiers v1 in its own environment: tasks become bundles, their rewards judge, and a reward that raises is no zero."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.bundle import BundleDraft
from ledger.errors import BundleError, SettingsError, VenvFailed, VerifierFailed, WorldFailed
from ledger.settings import Settings
from training.verifiers import JudgeTask, Verdict
from training.verifiers.taskset_rewards import taskset_rewards
from training.worlds import ToolCall
from training.worlds.source import TaskQuery
from training.worlds.verifiers_tasks import SOURCE, Taskset, open_taskset

pytestmark = pytest.mark.slow

ODD_TASKSET = """
import verifiers.v1 as vf

__all__ = ["OddTaskset"]


class OddData(vf.TaskData):
    kind: str = "plain"


class OddTask(vf.Task[OddData]):
    @vf.reward(weight=2.0)
    async def sees(self, task: OddData, trace: vf.Trace) -> float:
        roles = [node.message.role for node in trace.nodes]
        assert roles == ["system", "user", "assistant"], roles
        assert [node.sampled for node in trace.nodes] == [False, False, True]
        assert trace.nodes[1].message.content == "Say anything.", trace.nodes[1].message.content
        return 1.0

    @vf.reward
    async def raises(self, task: OddData, trace: vf.Trace) -> float:
        if trace.last_reply == "nan":
            return float("nan")
        return 1.0 / (len(trace.last_reply) - 4)


class OddTaskset(vf.Taskset[OddTask, vf.TasksetConfig]):
    def load(self):
        for _ in range(2):
            yield OddTask(OddData(prompt="Say anything.", system_prompt="Be brief."))
"""
RUNTIME_TASKSET = ODD_TASKSET.replace(
    "async def raises(self, task: OddData, trace: vf.Trace)", "async def raises(self, task: OddData, trace: vf.Trace, runtime: vf.Runtime)"
)


@pytest.fixture(scope="module")
def world() -> Iterator[Taskset]:
    try:
        made = open_taskset(Settings(), {})
    except VenvFailed as error:
        pytest.skip(f"verifiers cannot be installed here: {error}")
    yield made
    made.close()


@pytest.fixture(scope="module")
def odd(world: Taskset, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Taskset]:
    folder = tmp_path_factory.mktemp("odd")
    (folder / "odd_taskset.py").write_text(ODD_TASKSET)
    made = open_taskset(Settings(), {"taskset": "odd_taskset", "path": str(folder)})
    yield made
    made.close()


def tasks(world: Taskset, count: int = 1, **options: Any) -> list[BundleDraft]:
    return list(SOURCE.tasks(world, TaskQuery(count, 0, options), Settings()))


def judged(draft: BundleDraft, answer: str | None) -> Verdict:
    return taskset_rewards(None, {"answer": answer, "answered": answer is not None}, (), JudgeTask(draft, lambda view: view))


def statuses(verdict: Verdict) -> dict[str, str]:
    return {condition.name: condition.status for condition in verdict.conditions}


def test_tasks_carry_their_data_and_a_reference_that_the_rewards_accept(world: Taskset) -> None:
    first, second = tasks(world, 2)
    assert first.name == "example_taskset-0"
    assert first.request["turns"][0][0]["content"].startswith(f"Write the word {first.spec['data']['word']} backwards.")
    assert first.reference is not None
    answer = first.reference["turns"][0][0]["arguments"]["answer"]
    assert answer == first.spec["data"]["word"][::-1]
    assert answer not in str(first.request)
    assert first.spec["at_least"] == 1.5
    assert tasks(world, 1, first=1) == [second]
    assert statuses(judged(first, answer)) == {
        "answered": "passed",
        "reward:backwards": "passed",
        "reward:letters": "passed",
        "total": "passed",
    }


def test_part_of_the_rewards_is_not_enough_unless_the_task_says_so(world: Taskset) -> None:
    (draft,) = tasks(world)
    shuffled = "".join(sorted(draft.spec["data"]["word"]))
    verdict = judged(draft, shuffled)
    assert statuses(verdict) == {"answered": "passed", "reward:backwards": "failed", "reward:letters": "passed", "total": "failed"}
    assert verdict.passed is False
    assert verdict.conditions[-1].evidence == {"at_least": 1.5, "total": 0.5}
    assert judged(tasks(world, at_least=0.5)[0], shuffled).passed is True
    assert statuses(judged(draft, None)) == {"answered": "failed"}


def test_a_reward_that_raises_or_gives_no_number_is_an_error_and_never_zero(odd: Taskset) -> None:
    (draft,) = tasks(odd)
    assert draft.reference is None
    verdict = judged(draft, "four")
    assert statuses(verdict) == {"answered": "passed", "reward:raises": "error", "reward:sees": "passed", "total": "error"}
    assert verdict.passed is None
    assert verdict.conditions[1].evidence["error"]["class"] == "ZeroDivisionError"
    assert judged(draft, "nan").passed is None
    assert judged(draft, "right").passed is True, "one over one, and what the trace holds"


def test_an_answer_is_handed_in_once(world: Taskset) -> None:
    (draft,) = tasks(world)
    start = world.reset(draft, seed=0)
    refused, observation = world.call(start, ToolCall("submit", {"answer": 7}))
    assert (observation.error_class, world.digest(refused)) == ("invalid_arguments", world.digest(start))
    done, _ = world.call(start, ToolCall("submit", {"answer": "a"}))
    again, observation = world.call(done, ToolCall("submit", {"answer": "b"}))
    assert (observation.error_class, world.view(again)) == ("tool_error", {"answer": "a", "answered": True})
    assert world.restore(world.snapshot(done)) == done


def test_a_taskset_or_a_task_that_changed_since_is_a_failed_verifier_or_world(odd: Taskset) -> None:
    (draft,) = tasks(odd)
    forged = replace(draft, initial_state={**draft.initial_state, "hash": "0" * 64})
    with pytest.raises(VerifierFailed, match="has hash .* the bundle's is 0000"):
        judged(forged, "right")
    with pytest.raises(WorldFailed, match="the bundle's is 0000"):
        odd.reset(forged, seed=0)
    changed = replace(draft, spec={**draft.spec, "opened": {**draft.spec["opened"], "files": {"odd_taskset.py": "0" * 64}}})
    with pytest.raises(VerifierFailed, match="changed since its bundles were made"):
        judged(changed, "right")


def test_what_needs_more_than_a_conversation_or_is_not_there_is_refused(world: Taskset, tmp_path: Path) -> None:
    (tmp_path / "runtime_taskset.py").write_text(RUNTIME_TASKSET)
    needy = open_taskset(Settings(), {"taskset": "runtime_taskset", "path": str(tmp_path)})
    with pytest.raises(
        BundleError, match="task 0 of taskset 'runtime_taskset' cannot be carried out here: it has no rewards, or one that needs a runtime"
    ):
        tasks(needy)
    needy.close()
    with pytest.raises(BundleError, match="has 1 tasks from number 49 on; asked for 2"):
        tasks(world, 2, first=49)
    with pytest.raises(SettingsError, match="takes no option 'fist'"):
        tasks(world, 1, fist=1)
    with pytest.raises(SettingsError, match="option path of world 'verifiers_tasks'"):
        open_taskset(Settings(), {"taskset": "x", "path": str(tmp_path / "absent")})


def test_an_experiment_of_scripted_policies_is_judged_by_the_tasksets_rewards(outcomes: Callable[..., Any], world: Taskset) -> None:
    seen = outcomes("verifiers_tasks", ("oracle", "goes_wrong", "gives_up"), options={"config": {"words": 5, "seed": 3}})
    assert seen == {"oracle": [True, True], "goes_wrong": [False, False], "gives_up": [False, False]}
