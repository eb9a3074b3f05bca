"""Supervised rows are drawn without replacement and weigh what their weighting says."""

import numpy as np
import pytest

from training.examples import Example
from training.objectives import objectives
from training.optimise.drawn import drawn_batch, draws
from training.optimise.pretraining import first_plain_id
from training.optimise.recipe import BoundTerm
from training.rows import Row
from training.weightings import weightings


def example(name: str, trained: int, weight: float = 1.0) -> Example:
    mask = np.array([False] + [True] * trained)
    nothing, step = np.full(len(mask), np.nan, dtype=np.float32), np.where(mask, 0, -1).astype(np.int32)
    return Example(
        Row(name, 0, "p", np.arange(len(mask), dtype=np.int32), mask, nothing, step, (), "start", text_only=True), weight, "imitated"
    )


def test_every_example_is_drawn_once_before_one_is_drawn_again() -> None:
    plan = draws([3, 5, 4, 6, 2], steps=40, batch_tokens=8, seed=1)
    flat = [n for chosen in plan for n in chosen]
    for at in range(0, len(flat) - len(flat) % 5, 5):
        assert sorted(flat[at : at + 5]) == [0, 1, 2, 3, 4]
    assert all(sum([3, 5, 4, 6, 2][n] for n in chosen) <= 8 and len(set(chosen)) == len(chosen) > 0 for chosen in plan)
    assert plan == draws([3, 5, 4, 6, 2], steps=40, batch_tokens=8, seed=1) != draws([3, 5, 4, 6, 2], steps=40, batch_tokens=8, seed=2)


def test_an_example_that_is_too_long_goes_alone() -> None:
    plan = draws([100, 2, 2], steps=30, batch_tokens=8, seed=0)
    assert {chosen for chosen in plan if 0 in chosen} == {(0,)} and any(len(chosen) == 2 for chosen in plan)


def test_a_draw_is_one_update_of_its_weighting_times_the_examples_own_weight() -> None:
    term = BoundTerm(objectives.bind("supervised"), weightings.bind("token_mean"))
    drawn = drawn_batch([example("a", 1), example("b", 3), example("c", 2, weight=0.5)], (1, 2), term)
    assert drawn.batch.rollout_id_Q == ("b", "c") and drawn.weight_Q == pytest.approx([0.6, 0.2])
    assert drawn.batch.terms[0].weight_T.sum() == pytest.approx(0.8) and bool(drawn.batch.text_only_Q.all())


def test_random_tokens_begin_after_the_special_ones() -> None:
    assert first_plain_id('{"added_tokens": [{"id": 0, "special": true}, {"id": 1, "special": true}, {"id": 9, "special": true}]}') == 2
    assert first_plain_id("{}") == 0
