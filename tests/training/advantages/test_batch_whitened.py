"""Returns whitened over the batch (REINFORCE++)."""

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, reward_of, rewarded, view_of, votes_of
from training.advantages import Advantages, advantages
from training.rewards import Scored


def estimate(*rolled: Rolled, kl: tuple[float | None, ...] | None = None, **params: object) -> Advantages:
    scores = {} if kl is None else {"kl": Scored(kl, ("",) * len(kl))}
    return advantages.bind("batch_whitened", **params).call(view_of(*rolled), reward_of(*rolled), votes_of(*rolled), scores)


def test_by_hand_over_rollouts_of_different_groups() -> None:
    told = estimate(Rolled(3.0, (5,), group="a"), Rolled(1.0, (1,), group="b"), std="population", eps=0.0)
    assert told.advantage_R == pytest.approx((1.0, -1.0))
    assert told.declared["population"] == "rollouts of the batch"


def test_over_tokens_the_longer_rollout_weighs_more() -> None:
    told = estimate(Rolled(1.0, (3,)), Rolled(0.0, (1,)), over="tokens", std="population", eps=0.0)
    assert told.advantage_R == pytest.approx((0.25 / np.sqrt(3 / 16), -0.75 / np.sqrt(3 / 16)))


@pytest.mark.parametrize("over", ["rollouts", "tokens"])
def test_the_voters_have_mean_zero_and_deviation_one(over: str) -> None:
    rolled = (Rolled(1.0, (2, 1)), Rolled(0.0, (4,)), Rolled(0.3, (1,)), Rolled(None, (2,)))
    told, view = estimate(*rolled, over=over, std="population", eps=0.0), view_of(*rolled)
    values = told.adv_T[view.mask_T & (view.rollout_T < 3)] if over == "tokens" else np.array(told.advantage_R[:3])
    assert (values.mean(), values.std()) == pytest.approx((0.0, 1.0), abs=1e-12)
    assert told.adv_T[view.rollout_T == 3].tolist() == [0.0] * 3


def test_the_divergence_to_come_is_taken_off_the_return_by_hand() -> None:
    told = estimate(
        Rolled(1.0, (2,), context=0), Rolled(0.0, (1,), context=0), kl=(0.2, 0.1, 0.4), beta=0.5, over="tokens", std="population", eps=0.0
    )
    returns = np.array([1 - 0.5 * 0.3, 1 - 0.5 * 0.1, 0 - 0.5 * 0.4])
    assert told.adv_T == pytest.approx((returns - returns.mean()) / returns.std())
    assert told.advantage_R == ()


def test_one_voter_and_equal_rewards_have_no_advantage() -> None:
    alone, equal = estimate(*rewarded(5.0, None)), estimate(*rewarded(5.0, 5.0))
    assert (alone.advantage_R, alone.path_R[0]) == ((0.0, 0.0), "fallback:singleton")
    assert (equal.advantage_R, equal.path_R[0], equal.counters["zero_variance_populations"]) == ((0.0, 0.0), "native", 1)


def test_a_voter_without_sampled_tokens_votes_with_its_reward() -> None:
    told = estimate(Rolled(1.0, (2,)), Rolled(0.0, (0,)), std="population", eps=0.0)
    assert told.advantage_R == pytest.approx((1.0, -1.0))


def test_a_missing_divergence_is_refused_never_zero() -> None:
    two = (Rolled(1.0, context=0), Rolled(0.0, context=0))
    with pytest.raises(MethodError, match="no scores named kl"):
        estimate(*two, beta=0.1)
    with pytest.raises(MethodError, match="1 trained tokens have no finite kl"):
        estimate(*two, beta=0.1, kl=(0.1, None))
    with pytest.raises(MethodError, match="over is 'groups'"):
        estimate(*two, over="groups")
