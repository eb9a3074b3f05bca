"""Ranking: the value by hand and by DeLong, the control of depth and length, and what cannot be ranked."""

import numpy as np
import pytest

from audit.statistics import Table
from audit.statistics.auroc import area, auroc, delong
from ledger.errors import StatisticRefused


def table(score, label, bundle=None, **columns) -> Table:
    labels = np.arange(len(score)) if bundle is None else np.array(bundle, object)
    return Table({"score": np.array(score, float), "label": np.array(label, float), "bundle": labels, **columns})


def by_name(found):
    return {estimate.name: estimate for estimate in found}


def test_the_area_by_hand_ties_count_half() -> None:
    # Pairs of (.8, .4) with (.6, .4): above, above, below, tie.
    assert area(np.array([0.8, 0.4, 0.6, 0.4]), np.array([1.0, 1, 0, 0])) == pytest.approx(2.5 / 4)


def test_delong_s_interval_by_hand() -> None:
    # Components: successes 1, .5 and failures .5, 1; both variances .125, so the s.e. is sqrt(.125 / 2 + .125 / 2) = .353553.
    low, high = delong(np.array([0.8, 0.4, 0.6, 0.3]), np.array([1.0, 1, 0, 0]), level=0.95)
    assert (low, high) == pytest.approx((0.75 - 1.959964 * 0.353553, 1.0), abs=1e-5)


def test_s59_a_score_that_is_only_depth_has_no_residual() -> None:
    rng = np.random.default_rng(0)
    depth = rng.integers(1, 20, 4000).astype(float)
    label = (rng.random(4000) < 1 / (1 + np.exp(-(10 - depth) / 4))).astype(float)
    score = -depth + rng.normal(scale=1e-9, size=4000)
    found = by_name(auroc(table(score, label, depth=depth), draws=200))
    assert found["auroc"].value > 0.75 and found["auroc:texture"].value == pytest.approx(found["auroc"].value, abs=2e-3)
    assert found["auroc:residual"].value == pytest.approx(0.5, abs=0.03)
    assert any("no better than chance" in note for note in found["auroc"].caveats)
    honest = by_name(auroc(table(score + 10 * label, label, depth=depth), draws=200))
    assert honest["auroc:residual"].value > 0.8 and not any("no better than chance" in note for note in honest["auroc"].caveats)


def test_aud_42_without_controls_the_value_says_so() -> None:
    bare = auroc(table([0.9, 0.1, 0.8, 0.3], [1, 0, 0, 1]))
    assert [e.name for e in bare] == ["auroc"] and any("no depth and no length" in note for note in bare[0].caveats)
    told = auroc(table([0.9, 0.1, 0.8, 0.3], [1, 0, 0, 1], length=np.array([3.0, 4, 5, 9])))
    assert any("no token entropy" in note for note in told[0].caveats)


def test_entropy_ranks_by_its_negative_and_pairs_of_one_task_are_apart() -> None:
    columns = {"entropy": np.array([0.1, 0.9, 0.2, 0.8]), "task": np.array(["a", "a", "b", "b"], object)}
    found = by_name(auroc(table([0.1, 0.2, 0.8, 0.7], [1, 0, 1, 0], **columns)))
    assert found["auroc:entropy"].value == 1.0 and found["auroc"].value == 0.5
    assert found["auroc:within"].value == 0.5 and found["auroc:within"].controls["pairs"] == 2


def test_copies_of_every_row_leave_the_clustered_interval() -> None:
    rng = np.random.default_rng(1)
    score, label = rng.normal(size=60), (rng.random(60) < 0.5).astype(float)
    twice = auroc(table(np.tile(score, 2), np.tile(label, 2), np.tile(np.arange(60), 2)))[0]
    thrice = auroc(table(np.tile(score, 3), np.tile(label, 3), np.tile(np.arange(60), 3)))[0]
    assert (twice.low, twice.high) == pytest.approx((thrice.low, thrice.high)) and twice.method == "cluster_bootstrap"
    plain = auroc(table(score, label))[0]
    assert plain.method == "delong" and plain.width == pytest.approx(twice.width, rel=0.2)


def test_a_monotone_change_of_the_score_changes_nothing() -> None:
    rng = np.random.default_rng(2)
    score, label = rng.normal(size=40), (rng.random(40) < 0.5).astype(float)
    assert auroc(table(score, label))[0].value == auroc(table(np.exp(score), label))[0].value


def test_one_class_has_no_value_and_other_labels_are_refused() -> None:
    assert auroc(table([0.1, 0.2], [1, 1]))[0].value is None
    with pytest.raises(StatisticRefused, match="allowed: 0, 1 and missing"):
        auroc(table([0.1, 0.2], [1, 2]))
    few = auroc(table([0.1, 0.2, 0.3, np.nan], [1, 0, 1, 1]))[0]
    assert any("lack a value" in note for note in few.caveats) and any("rows of one class" in note for note in few.caveats)
