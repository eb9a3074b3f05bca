"""Cutting rollouts into rows, and rollouts that the world broke, change neither advantages nor weights."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.view_builder import Rolled, reward_of, view_of, votes_of
from training.advantages import advantages
from training.rewards import Scored
from training.view import RolloutView
from training.weightings import weightings

ESTIMATORS: list[tuple[str, dict[str, Any]]] = [
    ("group_mean", {}), ("group_mean", {"singleton": "reward"}), ("group_normalised", {}), ("group_normalised", {"std": "population"}),
    ("leave_one_out", {}), ("batch_whitened", {}), ("batch_whitened", {"over": "tokens"}), ("batch_whitened", {"beta": 0.3}),
    ("step_gae", {}), ("step_gae", {"gamma": 0.9, "lam": 0.8, "whiten": False}),
    ("state_group", {}), ("state_group", {"std": "unbiased", "episode_baseline": "steps"}),
]  # fmt: skip
INVARIANT = [name for name in weightings.names() if weightings[name].slice_invariant]  # type: ignore[attr-defined]


@st.composite
def rollouts(draw: st.DrawFn) -> tuple[Rolled, ...]:
    """Rollouts of a few groups with rewards that tie, differ or are missing, cut into rows at random."""
    drawn = []
    for _ in range(draw(st.integers(2, 6))):
        steps = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=5)))
        reward = draw(st.sampled_from([0.0, 0.5, 1.0, 0.1 + 0.2, None]))
        states = tuple(draw(st.sampled_from(["s0", "s1", ""])) for _ in steps)
        cuts = tuple(sorted(draw(st.sets(st.integers(1, 4)))))
        drawn.append(Rolled(reward, steps, cuts, draw(st.sampled_from(["g", "h"])), states=states, context=draw(st.integers(0, 2))))
    return tuple(drawn)


def whole(rolled: tuple[Rolled, ...]) -> tuple[Rolled, ...]:
    return tuple(Rolled(one.reward, one.steps, (), one.group, states=one.states, context=one.context) for one in rolled)


def by_sample(view: RolloutView, column_T: np.ndarray) -> np.ndarray:
    """A column on the sampled tokens, in the order in which they were sampled, whatever rows they stand in."""
    assert not column_T[~view.mask_T].any()
    where = np.flatnonzero(view.mask_T)
    return column_T[where[np.argsort(view.step_T[where], kind="stable")]]


def divergences(view: RolloutView) -> Mapping[str, Scored]:
    """A divergence for each sampled token that depends on its step and its place in it alone."""
    where = np.flatnonzero(view.mask_T)
    order = where[np.argsort(view.step_T[where], kind="stable")]
    kl_T: list[float | None] = [None] * len(view.mask_T)
    for place, token in enumerate(order.tolist()):
        kl_T[token] = 0.01 * (place % 7)
    return {"kl": Scored(tuple(kl_T), ("",) * len(kl_T))}


@pytest.mark.parametrize(("name", "params"), ESTIMATORS, ids=[f"{name}-{params}" for name, params in ESTIMATORS])
@given(rolled=rollouts(), seed=st.integers(0, 2**16))
@settings(max_examples=20, deadline=None)
def test_advantages_do_not_depend_on_the_cut(name: str, params: dict[str, Any], rolled: tuple[Rolled, ...], seed: int) -> None:
    plain = view_of(*whole(rolled))
    rows = len(view_of(*rolled).rollout_Q)
    cut = view_of(*rolled, row_order=np.random.default_rng(seed).permutation(rows).tolist())
    estimate = advantages.bind(name, **params).call
    first, second = (
        by_sample(view, estimate(view, reward_of(*rolled), votes_of(*rolled), divergences(view)).adv_T) for view in (plain, cut)
    )
    np.testing.assert_allclose(second, first, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", INVARIANT)
@given(rolled=rollouts(), seed=st.integers(0, 2**16))
@settings(max_examples=20, deadline=None)
def test_weights_that_declare_it_do_not_depend_on_the_cut(name: str, rolled: tuple[Rolled, ...], seed: int) -> None:
    plain = view_of(*whole(rolled))
    cut = view_of(*rolled, row_order=np.random.default_rng(seed).permutation(len(view_of(*rolled).rollout_Q)).tolist())
    trains_R = votes_of(*rolled)
    first, second = (by_sample(view, weightings[name](view, trains_R, view.mask_T)) for view in (plain, cut))
    np.testing.assert_allclose(second, first, rtol=1e-9)


@pytest.mark.parametrize("name", sorted(set(weightings.names()) - set(INVARIANT)))
def test_weights_that_do_not_declare_it_do_depend_on_the_cut(name: str) -> None:
    rolled = (Rolled(1.0, (1, 3), cuts=(1,)), Rolled(0.0, (2,)))
    plain, cut = view_of(*whole(rolled)), view_of(*rolled)
    first, second = (by_sample(view, weightings[name](view, np.array([True, True]), view.mask_T)) for view in (plain, cut))
    assert not np.allclose(first, second)


BROKEN = tuple(Rolled(reward, (2, 1), (1,), "g", outcome="env_failed", states=("s0", "s1")) for reward in (None, 0.0, None))


def with_broken(rolled: tuple[Rolled, ...], places: list[int]) -> tuple[tuple[Rolled, ...], np.ndarray]:
    """The rollouts with three broken ones put among them, and which are the broken ones."""
    mixed = list(rolled)
    for one, place in zip(BROKEN, places, strict=True):
        mixed.insert(min(place, len(mixed)), one)
    return tuple(mixed), np.array([one.outcome == "env_failed" for one in mixed])


@pytest.mark.parametrize(("name", "params"), ESTIMATORS, ids=[f"{name}-{params}" for name, params in ESTIMATORS])
@given(rolled=rollouts(), places=st.lists(st.integers(0, 6), min_size=3, max_size=3))
@settings(max_examples=20, deadline=None)
def test_three_broken_rollouts_change_no_advantage_and_no_weight(
    name: str, params: dict[str, Any], rolled: tuple[Rolled, ...], places: list[int]
) -> None:
    mixed, broken_R = with_broken(rolled, places)
    plain, view = view_of(*rolled), view_of(*mixed)
    votes_R = votes_of(*mixed) & ~broken_R
    kept_T = ~broken_R[view.rollout_T]
    scores = divergences(view)
    plain_scores = {"kl": Scored(tuple(v for v, kept in zip(scores["kl"].value_R, kept_T, strict=True) if kept), ("",) * int(kept_T.sum()))}
    estimate = advantages.bind(name, **params).call
    told = estimate(view, reward_of(*mixed), votes_R, scores)
    np.testing.assert_allclose(
        told.adv_T[kept_T], estimate(plain, reward_of(*rolled), votes_of(*rolled), plain_scores).adv_T, rtol=1e-9, atol=1e-12
    )
    assert not told.adv_T[~kept_T].any()
    for weighting in weightings.names():
        weight_T = weightings[weighting](view, votes_R, view.mask_T)
        np.testing.assert_allclose(weight_T[kept_T], weightings[weighting](plain, votes_of(*rolled), plain.mask_T), rtol=1e-9)
        assert not weight_T[~kept_T].any()
