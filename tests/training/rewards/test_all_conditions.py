"""The binary outcome reward."""

import pytest

from training.rewards import JudgedRollout, rewards

rule = rewards["all_conditions"]


def test_passed_is_one_failed_is_zero_by_hand() -> None:
    scored = rule(
        [
            JudgedRollout("finished", True, "completed", {"C1": True, "C2": True}),
            JudgedRollout("finished", False, "completed", {"C1": True, "C2": False, "C3": False, "C4": True}),
        ]
    )
    assert scored.value_R == (1.0, 0.0)
    assert scored.terms["passed_share"] == (1.0, 0.5)


@pytest.mark.parametrize("ended_by", ["world_error", "harness_error", "engine_error", "cancelled"])
def test_a_broken_rollout_has_no_number_whatever_was_judged(ended_by: str) -> None:
    scored = rule([JudgedRollout(ended_by, False, "completed"), JudgedRollout(ended_by, True, "completed")])
    assert scored.value_R == (None, None)
    assert all(ended_by in reason for reason in scored.reason_R)


def test_missing_is_not_zero() -> None:
    scored = rule([JudgedRollout("finished", None, None), JudgedRollout("finished", None, "error", {"C1": None})])
    assert scored.value_R == (None, None)
    assert scored.reason_R == ("no verdict", "the verifier could not decide")
    assert scored.terms["passed_share"] == (None, None)


def test_a_limit_does_not_preclude_success() -> None:
    assert rule([JudgedRollout("turn_limit", True, "completed")]).value_R == (1.0,)


def test_the_order_of_rollouts_does_not_matter() -> None:
    view = [
        JudgedRollout("finished", True, "completed"),
        JudgedRollout("finished", False, "completed"),
        JudgedRollout("world_error", None, None),
    ]
    assert rule(view[::-1]).value_R == rule(view).value_R[::-1]
