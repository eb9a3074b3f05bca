"""Group baselines for rollouts and for equal states (GiGPO)."""

import dataclasses
import math

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, reward_of, rewarded, view_of, votes_of
from training.advantages import Advantages, advantages

TOY = (Rolled(1.0, (1, 1, 1, 1), states=("s0", "sA", "s0", "sB")), Rolled(0.0, (1, 1), states=("s0", "sC")))


def estimate(*rolled: Rolled, **params: object) -> Advantages:
    return advantages.bind("state_group", **params).call(view_of(*rolled), reward_of(*rolled), votes_of(*rolled), {})


def trained(told: Advantages, *rolled: Rolled) -> list[float]:
    return told.adv_T[view_of(*rolled).mask_T].tolist()


def test_the_step_part_by_hand() -> None:
    told = estimate(*TOY)
    mean = (0.95**3 + 0.95 + 0) / 3
    steps = [0.95**3 - mean, 0.0, 0.95 - mean, 0.0, -mean, 0.0]
    assert trained(told, *TOY) == pytest.approx([0.5 + value for value in steps[:4]] + [-0.5 + value for value in steps[4:]])
    assert (told.counters["states_met_once"], told.counters["states_shared"], told.counters["steps"]) == (3, 1, 6)
    assert told.invariants["sum_over_states"] < 1e-12 and told.invariants["sum_over_voters"] < 1e-12


def test_across_steps_the_longer_rollout_weighs_more_and_says_so() -> None:
    told = estimate(*TOY, episode_baseline="steps", step_weight=0.0)
    assert trained(told, *TOY) == pytest.approx([1 - 4 / 6] * 4 + [-4 / 6] * 2)
    assert told.declared["episode_baseline"] == "steps"


def test_a_standard_deviation_divides_both_parts() -> None:
    pair = (Rolled(1.0, (1,), states=("s",)), Rolled(0.0, (1,), states=("s",)))
    assert trained(estimate(*pair, std="unbiased", eps=0.0), *pair) == pytest.approx([2 * math.sqrt(0.5), -2 * math.sqrt(0.5)])


def test_equal_states_of_other_populations_and_unknown_states_are_not_compared() -> None:
    apart = (*TOY[:1], dataclasses.replace(TOY[1], group="h"))
    assert trained(estimate(*apart), *apart) == [0.0] * 6
    twice = (*TOY, *(dataclasses.replace(one, group="h", reward=one.reward + 5) for one in TOY if one.reward is not None))
    assert trained(estimate(*twice), *twice)[:6] == pytest.approx(trained(estimate(*TOY), *TOY))
    unknown = tuple(dataclasses.replace(one, states=()) for one in TOY)
    told = estimate(*unknown)
    assert trained(told, *unknown) == [0.5] * 4 + [-0.5] * 2
    assert told.counters["states_unknown"] == 6


def test_who_does_not_vote_shapes_no_state() -> None:
    broken = (*TOY, Rolled(None, (1, 1), states=("s0", "sA"), outcome="env_failed"))
    told = estimate(*broken)
    assert trained(told, *broken) == [*trained(estimate(*TOY), *TOY), 0.0, 0.0]
    assert told.path_R == ("native", "native", "fallback:no_reward")


def test_a_population_of_one_has_nothing_to_compare() -> None:
    told = estimate(TOY[0])
    assert (trained(told, TOY[0]), told.path_R) == ([0.0] * 4, ("fallback:singleton",))


def test_wrong_parameters_are_refused() -> None:
    for params, said in (
        ({"gamma": -0.1}, "gamma -0.1"),
        ({"std": "mean"}, "std is 'mean'"),
        ({"episode_baseline": "rows"}, "episode_baseline is 'rows'"),
    ):
        with pytest.raises(MethodError, match=said):
            estimate(*rewarded(1, 0), **params)
    view = dataclasses.replace(view_of(*TOY), step_T=np.full(12, -1))
    with pytest.raises(MethodError, match="6 trained tokens belong to no step"):
        advantages["state_group"](view, reward_of(*TOY), votes_of(*TOY), {})
