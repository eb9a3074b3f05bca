"""Preference pairs."""

import math

import pytest

from ledger.errors import MethodError
from tests.loss_batches import batch_of, gradient, outputs_of
from training.objectives import LossBatch, objectives

NEW, REF = [-0.1, -1.0, -2.0, -0.2, -3.0], [-0.1, -1.5, -2.0, -0.2, -1.0]
MASK, ROWS = [False, True, True, False, True], [0, 0, 0, 1, 1]


def batch(pairs: list[tuple[int, int]] | None, **changed: object) -> LossBatch:
    given: dict[str, object] = {"mask": MASK, "rows": ROWS, "ref": REF, "pairs": pairs} | changed
    return batch_of(given.pop("mask"), **given)  # type: ignore[arg-type]


def test_by_hand() -> None:
    outputs = outputs_of(NEW)
    loss_P, metrics = objectives.bind("dpo", beta=0.1).call(outputs, batch([(0, 1), (1, 0)]))
    margin = 0.5 - (-2.0)
    assert loss_P.tolist() == pytest.approx([math.log1p(math.exp(-0.1 * margin)), math.log1p(math.exp(0.1 * margin))])
    assert metrics == {"accuracy": 0.5, "margin": pytest.approx(0.0), "pairs": 2.0}


def test_the_preferred_row_is_raised_and_the_rejected_one_lowered_alike() -> None:
    outputs = outputs_of(NEW)
    loss_P, _ = objectives.bind("dpo", beta=0.1).call(outputs, batch([(0, 1)]))
    slope = 0.1 / (1 + math.exp(0.1 * 2.5))
    assert gradient(loss_P, outputs) == pytest.approx([0.0, -slope, -slope, 0.0, slope])


def test_at_the_reference_every_pair_costs_ln_2() -> None:
    loss_P, _ = objectives["dpo"](outputs_of(REF), batch([(0, 1)]))
    assert loss_P.tolist() == pytest.approx([math.log(2)])


def test_pairs_that_do_not_hold_are_refused() -> None:
    refused = {
        "pairs: none, row_T there": batch(None),
        "row_T missing": batch([(0, 1)], rows=None),
        "two different rows of 0 to 1": batch([(0, 2)]),
        r"pairs \[\[1, 1\]\]": batch([(1, 1)]),
        "a row of a pair has no masked tokens": batch([(0, 1)], mask=[False, True, True, False, False]),
        "1 masked tokens are of text-only rows": batch([(0, 1)], text_only=[False, True, False, False, False]),
        "1 masked tokens have no 'ref'": batch([(0, 1)], ref=[-1.0, float("nan"), -1.0, -1.0, -1.0]),
    }
    for said, wrong in refused.items():
        with pytest.raises(MethodError, match=said):
            objectives["dpo"](outputs_of(NEW), wrong)
    with pytest.raises(MethodError, match="beta is 0"):
        objectives.bind("dpo", beta=0.0).call(outputs_of(NEW), batch([(0, 1)]))
