"""The baseline of the others (RLOO)."""

import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, reward_of, rewarded, view_of, votes_of
from training.advantages import Advantages, advantages


def estimate(*rolled: Rolled, **params: object) -> Advantages:
    return advantages.bind("leave_one_out", **params).call(view_of(*rolled), reward_of(*rolled), votes_of(*rolled), {})


def test_by_hand() -> None:
    told = estimate(*rewarded(6.0, 2.0, 1.0))
    assert told.advantage_R == pytest.approx((4.5, -1.5, -3.0))


def test_one_rollouts_reward_does_not_enter_its_own_baseline() -> None:
    low, high = estimate(*rewarded(0.0, 2.0, 4.0)), estimate(*rewarded(9.0, 2.0, 4.0))
    assert low.advantage_R[0] == pytest.approx(0.0 - 3.0)
    assert high.advantage_R[0] == pytest.approx(9.0 - 3.0)


def test_one_voter_has_no_others() -> None:
    told = estimate(*rewarded(3.0, None))
    assert (told.advantage_R, told.path_R) == ((0.0, 0.0), ("fallback:singleton", "fallback:no_reward"))
    assert estimate(*rewarded(3.0), singleton="reward").advantage_R == (3.0,)


def test_an_unknown_convention_is_refused() -> None:
    with pytest.raises(MethodError, match="singleton is 'mean'"):
        estimate(*rewarded(1, 0), singleton="mean")
