"""Rollouts that a limit ended."""

import pytest

from ledger.errors import MethodError
from ledger.outcome import LIMITS
from tests.view_builder import Rolled, reward_of, view_of
from training.filters import Kept, filters


def keep(*rolled: Rolled, **params: object) -> Kept:
    return filters.bind("truncated", **params).call(view_of(*rolled), (), reward_of(*rolled))


@pytest.mark.parametrize("limit", LIMITS)
def test_every_limit_drops_by_name(limit: str) -> None:
    kept = keep(Rolled(ended_by=limit), Rolled(ended_by="finished"), Rolled(ended_by="world_error"))
    assert kept.keep_R.tolist() == [False, True, True]
    assert kept.reason_R == (f"truncated:{limit}", "", "")
    assert kept.route_R == ("", "", "")
    assert kept.counters == {f"truncated:{name}": int(name == limit) for name in LIMITS}


def test_those_that_had_reached_the_goal_may_stay() -> None:
    rolled = (Rolled(ended_by="turn_limit", outcome="succeeded"), Rolled(ended_by="turn_limit", outcome="limit_ended"))
    assert keep(*rolled).keep_R.tolist() == [False, False]
    assert keep(*rolled, keep_succeeded=True).keep_R.tolist() == [True, False]


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(MethodError, match="takes no parameter 'limits'"):
        keep(Rolled(), limits=["turn_limit"])
