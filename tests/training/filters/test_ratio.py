"""Rollouts that trainer and engine give different probabilities."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, reward_of, view_of
from training.filters import Kept, filters
from training.view import RolloutView


def keep_view(view: RolloutView, *rolled: Rolled, **params: object) -> Kept:
    return filters.bind("ratio", **params).call(view, (), reward_of(*rolled))


def keep(*rolled: Rolled, ratios: Sequence[float], **params: object) -> Kept:
    """With a behaviour of -1 nat on each token and these ratios along the trained tokens."""
    view = view_of(*rolled)
    trainer_T = np.full(len(view.mask_T), np.nan)
    trainer_T[view.mask_T] = np.log(ratios) - 1.0
    return keep_view(replace(view, trainer_logprob_T=trainer_T), *rolled, **params)


def test_the_geometric_mean_over_the_rollout_decides() -> None:
    # (4 x 1)^(1/2) = 2 stays, though its product is 4 and its arithmetic mean 2.5; 8^(1/2) = 2.83 and (1/16)^(1/2) = .25 go.
    rolled = (Rolled(steps=(2,)), Rolled(steps=(2,)), Rolled(steps=(1, 1), cuts=(1,)), Rolled(steps=(3,)))
    kept = keep(*rolled, ratios=(4, 1, 8, 1, 1 / 4, 1 / 4, 0.5, 1, 2), high=2.0 + 1e-9)
    assert kept.reason_R == ("", "ratio:high", "ratio:low", "")
    assert kept.keep_R.tolist() == [True, False, False, True] and kept.route_R == ("", "quarantine", "quarantine", "")
    assert kept.counters == {"below": 1, "above": 1, "unknown": 0, "dropped_tokens": 4}
    assert kept.weight_R.tolist() == [1.0] * 4


def test_neither_cutting_into_rows_nor_repeating_the_tokens_changes_who_stays() -> None:
    ratios = (3.0, 0.9, 1.7, 2.2)
    whole = keep(Rolled(steps=(2, 2)), ratios=ratios, high=1.8)
    assert whole.keep_R.tolist() == keep(Rolled(steps=(2, 2), cuts=(1,)), ratios=ratios, high=1.8).keep_R.tolist() == [True]
    assert keep(Rolled(steps=(8,)), ratios=ratios * 2, high=1.8).keep_R.tolist() == [True]
    assert keep(Rolled(steps=(2, 2)), ratios=ratios, high=1.7).keep_R.tolist() == [False]


def test_equal_probabilities_are_kept_under_the_tightest_bounds() -> None:
    assert keep(Rolled(steps=(3,)), Rolled(steps=(0,)), ratios=(1, 1, 1), low=1.0, high=1.0).keep_R.tolist() == [True, True]


def test_what_is_not_known_is_never_read_as_a_ratio_of_one() -> None:
    view = view_of(Rolled(steps=(1,)), Rolled(steps=(2,)))
    behaviour_T, trainer_T = view.behaviour_logprob_T.copy(), np.where(view.mask_T, -1.0, np.nan)
    behaviour_T[np.flatnonzero(view.mask_T)[0]] = np.nan
    kept = keep_view(replace(view, behaviour_logprob_T=behaviour_T, trainer_logprob_T=trainer_T), Rolled(steps=(1,)), Rolled(steps=(2,)))
    assert kept.reason_R == ("ratio:unknown", "") and kept.counters["unknown"] == 1


@pytest.mark.parametrize("bounds", [{"low": 0.0}, {"low": 1.1}, {"high": 0.9}, {"low": -1.0}])
def test_bounds_that_leave_out_one_are_refused(bounds: dict[str, float]) -> None:
    with pytest.raises(MethodError, match="allowed: 0 < low <= 1 <= high"):
        keep(Rolled(), ratios=(1,), **bounds)


def test_a_view_without_the_trainers_probabilities_is_refused() -> None:
    with pytest.raises(MethodError, match="trainer log-probabilities of 0 of 2 tokens"):
        keep_view(view_of(Rolled()), Rolled())
