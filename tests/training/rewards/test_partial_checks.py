"""The outcome reward shaped by further checks."""

from dataclasses import replace

import pytest

from ledger.errors import MethodError
from training.rewards import JudgedRollout, rewards

rule = rewards["partial_checks"]
HALF = JudgedRollout("finished", False, "completed", {"all": False}, {"C1": True, "C2": False, "C3": False, "C4": True})
WHOLE = JudgedRollout("finished", True, "completed", {"all": True}, {"C1": True, "C2": True})


def test_share_and_success_by_hand() -> None:
    scored = rule([HALF, WHOLE])
    assert scored.value_R == (0.25, 1.0) and scored.reason_R[0] == "2 of 4 checks passed"
    assert rule([HALF, WHOLE], success=0.0).value_R == (0.5, 1.0)
    assert rule([HALF, WHOLE], success=1.0).value_R == (0.0, 1.0)


def test_checks_of_what_a_limit_ended_are_worth_nothing() -> None:
    scored = rule([replace(HALF, ended_by="token_limit"), replace(WHOLE, ended_by="turn_limit")])
    assert scored.value_R == (0.0, 0.5)
    assert scored.reason_R[0] == "2 of 4 checks passed, none of which count: token_limit"


def test_what_was_not_decided_has_no_number() -> None:
    unsure = JudgedRollout("finished", None, "error", {"all": None}, {"C1": True, "C2": None})
    assert (
        rule(
            [unsure, JudgedRollout("finished", None, None), JudgedRollout("engine_error", False, "completed", {"all": False}, {"C1": True})]
        ).value_R
        == (None,) * 3
    )


def test_one_more_check_is_worth_more_and_success_the_most() -> None:
    values = [
        rule([JudgedRollout("finished", n == 4, "completed", {"all": n == 4}, {f"C{c}": c < n for c in range(4)})]).value_R[0]
        for n in range(5)
    ]
    assert values == sorted(values, key=lambda value: value or 0.0) and values[0] == 0.0 and values[-1] == 1.0


def test_a_weight_out_of_range_is_refused() -> None:
    with pytest.raises(MethodError, match="success is 2"):
        rule([HALF], success=2)


def test_a_verdict_without_further_checks_has_no_number() -> None:
    scored = rule([JudgedRollout("finished", True, "completed", {"C1": True})])
    assert scored.value_R == (None,)
    assert "no further checks" in scored.reason_R[0]
