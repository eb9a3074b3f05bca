"""Rollouts that were sampled too long ago."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, reward_of, view_of
from training.filters import Kept, filters
from training.optimise.standing import filtered, standing

NAN = float("nan")


def keep(*rolled: Rolled, lags: Sequence[float], max_lag: object = 0) -> Kept:
    view = replace(view_of(*rolled), lag_S=np.array(lags, dtype=np.float64))
    return filters.bind("stale", max_lag=max_lag).call(view, (), reward_of(*rolled))


def test_the_oldest_trained_step_decides() -> None:
    # Lags of the steps: r0 on policy; r1 began one update ago; r2 three ago and went on after a refresh; r3 unknown in one step.
    rolled = (Rolled(steps=(2, 3)), Rolled(steps=(4, 1)), Rolled(steps=(1, 5)), Rolled(steps=(1, 1)))
    lags = (0, 0, 1, 0, 3, 2, 0, NAN)
    strict, loose = keep(*rolled, lags=lags), keep(*rolled, lags=lags, max_lag=2)
    assert strict.reason_R == ("", "stale:1", "stale:3", "stale:unknown")
    assert loose.reason_R == ("", "", "stale:3", "stale:unknown")
    assert loose.keep_R.tolist() == [True, True, False, False] and loose.route_R == ("", "", "refill", "refill")
    assert loose.counters == {"dropped_rollouts": 2, "dropped_tokens": 8, "unknown_lag": 1, "largest_lag_kept": 1}


def test_a_step_without_trained_tokens_makes_nothing_stale_and_cutting_rows_changes_nothing() -> None:
    assert keep(Rolled(steps=(0, 2)), lags=(NAN, 0)).keep_R.tolist() == [True]
    whole, cut = keep(Rolled(steps=(1, 2, 3)), lags=(0, 4, 1)), keep(Rolled(steps=(1, 2, 3), cuts=(1, 2)), lags=(0, 4, 1))
    assert whole.reason_R == cut.reason_R == ("stale:4",) and whole.counters == cut.counters


def test_a_larger_bound_drops_no_more() -> None:
    rng = np.random.default_rng(3)
    rolled = [Rolled(steps=(1, 1)) for _ in range(40)]
    lags = rng.integers(0, 6, 80).astype(float)
    kept = [keep(*rolled, lags=lags, max_lag=bound).keep_R for bound in range(7)]
    assert all((less <= more).all() for less, more in pairwise(kept)) and kept[-1].all() and not kept[0].all()


def test_what_is_stale_does_not_vote() -> None:
    rolled = (Rolled(100.0), Rolled(1.0), Rolled(0.0))
    view = replace(view_of(*rolled), lag_S=np.array([2.0, 1.0, 0.0]), model_version_R=("m-3", "m-2", "m-1"))
    reward = reward_of(*rolled)
    stand = standing(view, reward, truncated="include", current=frozenset(view.model_version_R))
    stand = filtered(stand, view, reward, [filters.bind("stale", max_lag=1)])
    assert stand.votes_R.tolist() == stand.trains_R.tolist() == [False, True, True]


@pytest.mark.parametrize("bound", [-1, 0.5, True, "1"])
def test_a_bound_that_counts_no_updates_is_refused(bound: object) -> None:
    with pytest.raises(MethodError, match="allowed: a whole number of updates"):
        keep(Rolled(), lags=(0,), max_lag=bound)


def test_a_view_without_lags_is_refused() -> None:
    with pytest.raises(MethodError, match="0 lags for 2 steps"):
        keep(Rolled(steps=(1, 1)), lags=())
