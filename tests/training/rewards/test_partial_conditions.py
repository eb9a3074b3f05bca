"""The shaped outcome reward."""

import pytest

from ledger.errors import MethodError
from training.rewards import JudgedRollout, rewards

rule = rewards["partial_conditions"]
HALF = JudgedRollout("finished", False, "completed", {"C1": True, "C2": False, "C3": False, "C4": True})
WHOLE = JudgedRollout("turn_limit", True, "completed", {"C1": True, "C2": True})


def test_share_and_success_by_hand() -> None:
    scored = rule([HALF, WHOLE])
    assert scored.value_R == (0.25, 1.0) and scored.reason_R[0] == "2 of 4 conditions passed"
    assert rule([HALF, WHOLE], success=0.0).value_R == (0.5, 1.0)
    assert rule([HALF, WHOLE], success=1.0).value_R == (0.0, 1.0)


def test_what_was_not_decided_has_no_number() -> None:
    unsure = JudgedRollout("finished", None, "error", {"C1": True, "C2": None})
    assert (
        rule([unsure, JudgedRollout("finished", None, None), JudgedRollout("engine_error", False, "completed", {"C1": True})]).value_R
        == (None,) * 3
    )


def test_one_more_condition_is_worth_more_and_success_the_most() -> None:
    values = [rule([JudgedRollout("finished", n == 4, "completed", {f"C{c}": c < n for c in range(4)})]).value_R[0] for n in range(5)]
    assert values == sorted(values, key=lambda value: value or 0.0) and values[0] == 0.0 and values[-1] == 1.0


def test_a_weight_out_of_range_is_refused() -> None:
    with pytest.raises(MethodError, match="success is 2"):
        rule([HALF], success=2)
