"""The group baseline over the standard deviation (GRPO)."""

import math

import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, reward_of, rewarded, view_of, votes_of
from training.advantages import Advantages, advantages


def estimate(*rolled: Rolled, **params: object) -> Advantages:
    return advantages.bind("group_normalised", **params).call(view_of(*rolled), reward_of(*rolled), votes_of(*rolled), {})


def test_by_hand_with_either_standard_deviation() -> None:
    assert estimate(*rewarded(1, 0), eps=0.0).advantage_R == pytest.approx((math.sqrt(0.5), -math.sqrt(0.5)))
    assert estimate(*rewarded(1, 0), eps=0.0, std="population").advantage_R == pytest.approx((1.0, -1.0))
    assert estimate(*rewarded(1, 0), eps=0.5, std="population").advantage_R == pytest.approx((0.5, -0.5))


def test_scale_and_offset_of_the_reward_do_not_matter() -> None:
    rewards = (0.2, 0.9, 0.4)
    told, moved = estimate(*rewarded(*rewards), eps=0.0), estimate(*rewarded(*(5 * value - 3 for value in rewards)), eps=0.0)
    assert moved.advantage_R == pytest.approx(told.advantage_R)
    assert sum(value**2 for value in told.advantage_R) / 2 == pytest.approx(1)
    assert told.invariants["sum_over_voters"] < 1e-12


def test_equal_rewards_never_divide_by_nothing() -> None:
    assert estimate(*rewarded(1, 1), eps=0.0).advantage_R == (0.0, 0.0)
    assert estimate(*rewarded(1, 1 + 1e-10), eps=0.0).advantage_R == (0.0, 0.0)


def test_the_declared_convention_is_recorded() -> None:
    told = estimate(*rewarded(1, 0), std="population", singleton="reward", eps=1e-4)
    assert {key: told.declared[key] for key in ("std", "eps", "singleton")} == {"std": "population", "eps": 1e-4, "singleton": "reward"}


def test_parameters_out_of_range_are_refused() -> None:
    with pytest.raises(MethodError, match="std is 'biased'; allowed: 'unbiased', 'population'"):
        estimate(*rewarded(1, 0), std="biased")
    with pytest.raises(MethodError, match="eps is -1"):
        estimate(*rewarded(1, 0), eps=-1.0)
