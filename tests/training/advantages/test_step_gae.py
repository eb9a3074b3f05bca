"""Generalised advantage estimation along model calls."""

import dataclasses

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, reward_of, view_of, votes_of
from training.advantages import Advantages, advantages
from training.rewards import Scored


def estimate(*rolled: Rolled, values: tuple[float | None, ...] | None = None, **params: object) -> Advantages:
    scores = {} if values is None else {"value": Scored(values, ("",) * len(values))}
    return advantages.bind("step_gae", **params).call(view_of(*rolled), reward_of(*rolled), votes_of(*rolled), scores)


def trained(told: Advantages, *rolled: Rolled) -> list[float]:
    return told.adv_T[view_of(*rolled).mask_T].tolist()


def test_two_steps_without_values_by_hand() -> None:
    rolled = (Rolled(1.0, (1, 2)),)
    told = estimate(*rolled, whiten=False)
    assert trained(told, *rolled) == [1.0, 1.0, 1.0]
    assert (told.counters["value_zero"], told.declared["population"]) == (1, "none")


def test_values_discount_and_lambda_by_hand() -> None:
    rolled = (Rolled(1.0, (1, 1)), Rolled(0.0, (1,)))
    told = estimate(*rolled, values=(0.5, 0.25, 0.5), gamma=0.9, lam=0.5, whiten=False)
    first, second = 0.9 * 0.25 - 0.5, 1 - 0.25
    assert trained(told, *rolled) == pytest.approx([first + 0.45 * second, second, -0.5])
    assert told.counters["value_zero"] == 0


def test_with_the_right_values_nothing_is_better_than_expected() -> None:
    rolled = (Rolled(1.0, (1, 1, 1)),)
    assert trained(estimate(*rolled, values=(1.0, 1.0, 1.0), whiten=False, lam=0.7), *rolled) == pytest.approx([0.0, 0.0, 0.0])


def test_whitening_is_over_the_voters_steps() -> None:
    rolled = (Rolled(1.0, (5, 1)), Rolled(0.0, (1,)), Rolled(None, (1, 1)))
    told = estimate(*rolled, eps=0.0)
    third = 1 / np.sqrt(1 / 3)
    assert trained(told, *rolled) == pytest.approx([third / 3] * 6 + [-2 * third / 3, 0.0, 0.0])
    assert told.invariants["mean_over_steps"] == pytest.approx(0, abs=1e-12)
    assert (told.counters["steps"], told.path_R[2]) == (3, "fallback:no_reward")


def test_steps_of_rollouts_may_stand_among_one_another() -> None:
    view = view_of(Rolled(1.0, (1, 1)), Rolled(0.0, (1,)))
    mixed = dataclasses.replace(view, rollout_S=np.array([0, 1, 0]), step_T=np.array([-1, 0, -1, 2, -1, 1]))
    rolled = (Rolled(1.0, (1, 1)), Rolled(0.0, (1,)))
    scores = {"value": Scored((0.5, 0.5, 0.25), ("",) * 3)}
    told = advantages.bind("step_gae", whiten=False, gamma=0.9, lam=0.5).call(mixed, reward_of(*rolled), votes_of(*rolled), scores)
    straight = estimate(*rolled, values=(0.5, 0.25, 0.5), gamma=0.9, lam=0.5, whiten=False)
    assert told.adv_T == pytest.approx(straight.adv_T)


def test_rewards_of_steps_count_only_when_asked_for() -> None:
    rolled = (Rolled(1.0, (1, 1)),)
    view = dataclasses.replace(view_of(*rolled), reward_S=np.array([0.25, 0.0]))
    plain, both = (
        advantages.bind("step_gae", whiten=False, step_rewards=asked).call(view, reward_of(*rolled), votes_of(*rolled), {})
        for asked in (False, True)
    )
    assert plain.adv_T[view.mask_T].tolist() == [1.0, 1.0]
    assert both.adv_T[view.mask_T].tolist() == [1.25, 1.0]


def test_one_step_cannot_be_whitened() -> None:
    told = estimate(Rolled(1.0, (1,)))
    assert (told.adv_T.tolist(), told.path_R) == ([0.0, 0.0], ("fallback:singleton",))


def test_missing_values_and_stray_tokens_are_refused() -> None:
    with pytest.raises(MethodError, match="1 steps have no finite value"):
        estimate(Rolled(1.0, (1, 1)), values=(0.5, None))
    with pytest.raises(MethodError, match="1 values for 2 steps"):
        estimate(Rolled(1.0, (1, 1)), values=(0.5,))
    with pytest.raises(MethodError, match=r"gamma 1\.5"):
        estimate(Rolled(1.0), gamma=1.5)
    view = dataclasses.replace(view_of(Rolled(1.0)), step_T=np.array([-1, -1]))
    with pytest.raises(MethodError, match="1 trained tokens belong to no step"):
        advantages["step_gae"](view, reward_of(Rolled(1.0)), votes_of(Rolled(1.0)), {})
