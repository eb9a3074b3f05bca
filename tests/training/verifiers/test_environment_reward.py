"""The environment's own reward as a verdict: thresholds, ends, goals, and a missing reward that is no zero."""

from typing import Any

import pytest

from ledger.bundle import BundleDraft
from ledger.errors import VerifierFailed
from training.verifiers import JudgeTask, Verdict
from training.verifiers.environment_reward import environment_reward


def judged(rewards: list[Any], *, spec: dict[str, Any] | None = None, **episode: Any) -> Verdict:
    view = {"episode": {"terminated": True, "truncated": False, "steps": len(rewards), "rewards": rewards, **episode}}
    draft = BundleDraft("t", "w", {"turns": [[]]}, {}, spec={"at_least": 1.0, **(spec or {})})
    return environment_reward(None, view, (), JudgeTask(draft, lambda view: view))


def statuses(verdict: Verdict) -> dict[str, str]:
    return {condition.name: condition.status for condition in verdict.conditions}


def test_the_sum_of_the_rewards_must_reach_the_threshold() -> None:
    assert judged([0.5, -1.0, 1.5]).passed is True
    assert judged([0.5, -1.0, 1.49]).passed is False
    assert judged([0.1] * 10).passed is True, "ten tenths are one"
    assert judged([0.5, 1.0]).conditions[1].evidence["return"] == 1.5


def test_the_environment_must_have_ended_the_episode_unless_the_task_says_otherwise() -> None:
    assert statuses(judged([1], terminated=False, truncated=True)) == {"terminal": "failed", "reward": "passed"}
    assert judged([1], terminated=False, truncated=True, spec={"ends": "any"}).passed is True
    assert judged([1], terminated=False, spec={"ends": "any"}).passed is False
    assert statuses(judged([1], terminated=False, spec={"ends": None})) == {"reward": "passed"}


@pytest.mark.parametrize("missing", [None, "nan", True, float("inf")])
def test_a_reward_that_is_no_number_decides_nothing(missing: Any) -> None:
    verdict = judged([5.0, missing])
    assert statuses(verdict)["reward"] == "error"
    assert verdict.passed is None
    assert verdict.conditions[1].evidence["unusable"] == [1]


def test_where_rewards_come_seldom_only_the_last_must_be_there() -> None:
    assert judged([None, None, 1.0], spec={"sparse": True}).passed is True
    assert judged([1.0, None], spec={"sparse": True}).passed is None
    assert judged([None, 1.0]).passed is None


def test_a_goal_is_a_flag_of_the_environment() -> None:
    assert statuses(judged([1], spec={"goal": "won"}, won=True))["goal"] == "passed"
    assert judged([1], spec={"goal": "won"}, won=False).passed is False
    assert judged([1], spec={"goal": "won"}, won=None).passed is None
    assert judged([1], spec={"goal": "won"}).passed is None


def test_no_steps_are_a_return_of_zero() -> None:
    assert judged([], terminated=False).passed is False


def test_what_is_no_episode_or_no_threshold_is_a_failed_verifier() -> None:
    with pytest.raises(VerifierFailed, match=r"spec\.at_least must be a number"):
        judged([1], spec={"at_least": None})
    with pytest.raises(VerifierFailed, match=r"spec\.ends"):
        judged([1], spec={"ends": "never"})
    draft = BundleDraft("t", "w", {"turns": [[]]}, {}, spec={"at_least": 1})
    with pytest.raises(VerifierFailed, match="no episode"):
        environment_reward(None, {"tickets": {}}, (), JudgeTask(draft, lambda view: view))
