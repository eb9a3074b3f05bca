"""The group baseline without a standard deviation."""

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, reward_of, rewarded, view_of, votes_of
from training.advantages import Advantages, advantages
from training.rewards import Scored


def estimate(*rolled: Rolled, votes: tuple[bool, ...] | None = None, **params: object) -> Advantages:
    votes_R = votes_of(*rolled) if votes is None else np.array(votes)
    return advantages.bind("group_mean", **params).call(view_of(*rolled), reward_of(*rolled), votes_R, {})


def test_by_hand_and_on_every_sampled_token_alone() -> None:
    told = estimate(Rolled(1.0, (2, 1)), Rolled(0.0, (1,)), Rolled(0.5, (1,)))
    assert told.advantage_R == pytest.approx((0.5, -0.5, 0.0))
    assert told.adv_T.tolist() == pytest.approx([0.0, 0.5, 0.5, 0.0, 0.5, 0.0, -0.5, 0.0, 0.0])
    assert told.path_R == ("native",) * 3
    assert told.declared["population"] == "group x kind x fork x participant"


def test_advantages_of_a_population_sum_to_zero_and_ignore_an_added_constant() -> None:
    rewards = (0.3, 0.9, 0.1, 0.1)
    told, moved = estimate(*rewarded(*rewards)), estimate(*rewarded(*(value + 7 for value in rewards)))
    assert sum(told.advantage_R) == pytest.approx(0, abs=1e-12)
    assert told.invariants["sum_over_voters"] < 1e-12
    assert moved.advantage_R == pytest.approx(told.advantage_R)


@pytest.mark.parametrize("field", ["group", "kind", "fork", "participant"])
def test_a_population_is_group_kind_fork_and_participant(field: str) -> None:
    rolled = [Rolled(value, **{field: name}) for value, name in ((1.0, "a"), (0.0, "a"), (9.0, "b"), (5.0, "b"))]
    assert estimate(*rolled).advantage_R == (0.5, -0.5, 2.0, -2.0)


def test_who_does_not_vote_shapes_nothing_and_a_missing_reward_is_no_zero() -> None:
    told = estimate(*rewarded(1.0, None, 0.0, 8.0), votes=(True, True, True, False))
    assert told.advantage_R == (0.5, 0.0, -0.5, 0.0)
    assert told.path_R == ("native", "fallback:no_reward", "native", "fallback:no_vote")
    assert (told.counters["fallback:no_reward"], told.counters["fallback:no_vote"], told.counters["voters"]) == (1, 1, 2)


def test_equal_rewards_have_no_advantage_and_are_counted() -> None:
    told = estimate(*rewarded(0.1 + 0.2, 0.3, 0.3))
    assert told.advantage_R == (0.0, 0.0, 0.0)
    assert (told.counters["zero_variance_populations"], told.counters["zero_variance_rollouts"]) == (1, 3)
    assert estimate(*rewarded(0.3, 0.3 + 3e-9)).counters["zero_variance_populations"] == 0


def test_one_voter_has_zero_unless_another_convention_is_declared() -> None:
    alone, kept = estimate(*rewarded(4.0)), estimate(*rewarded(4.0), singleton="reward")
    assert (alone.advantage_R, alone.path_R, alone.counters["fallback:singleton"]) == ((0.0,), ("fallback:singleton",), 1)
    assert (kept.advantage_R, kept.path_R, kept.counters["fallback:singleton_reward"]) == ((4.0,), ("fallback:singleton_reward",), 1)
    assert (alone.declared["singleton"], kept.declared["singleton"]) == ("zero", "reward")


def test_wrong_input_is_refused_by_value() -> None:
    two = rewarded(1.0, 0.0)
    with pytest.raises(MethodError, match="reward of rollout r1 is nan"):
        estimate(Rolled(1.0), Rolled(float("nan")))
    with pytest.raises(MethodError, match="1 rewards and votes"):
        advantages["group_mean"](view_of(*two), Scored((1.0,), ("",)), votes_of(*two), {})
    with pytest.raises(MethodError, match="singleton is 'half'"):
        estimate(*two, singleton="half")


def test_an_empty_view_has_no_advantages() -> None:
    assert estimate().adv_T.shape == (0,)
