"""Calibration: numbers by hand, bins that never part equal confidences, and what makes the error large by chance."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.statistics import Table
from audit.statistics.calibration import calibration, equal_mass
from ledger.errors import StatisticRefused


def table(confidence, outcome, bundle=None) -> Table:
    labels = np.arange(len(confidence)) if bundle is None else np.array(bundle, object)
    return Table({"confidence": np.array(confidence, float), "outcome": np.array(outcome, float), "bundle": labels})


def by_name(found):
    return {estimate.name: estimate for estimate in found}


def test_error_and_brier_by_hand() -> None:
    # Two bins of two: |.15 - .5| and |.85 - 1|, each half of the rows; squares .01, .64, .04, .01.
    found = by_name(calibration(table([0.1, 0.2, 0.8, 0.9], [0, 1, 1, 1]), bins=2))
    assert found["ece"].value == pytest.approx(0.25) and found["brier"].value == pytest.approx((0.01 + 0.64 + 0.04 + 0.01) / 4)
    first = found["reliability:1"]
    assert (first.value, first.n, first.controls["confidence"]) == pytest.approx((0.5, 2, 0.15))


def test_s58_brier_of_one_confident_row() -> None:
    assert by_name(calibration(table([0.8], [1])))["brier"].value == pytest.approx(0.04)
    assert by_name(calibration(table([0.8], [0])))["brier"].value == pytest.approx(0.64)


def test_a_calibrated_forecast_has_a_small_error_and_an_overconfident_one_has_its_gap() -> None:
    rng = np.random.default_rng(0)
    stated = rng.random(20_000)
    came = (rng.random(20_000) < stated).astype(float)
    assert by_name(calibration(table(stated, came), draws=200))["ece"].value < 0.02
    low = by_name(calibration(table(stated, (rng.random(20_000) < stated / 2).astype(float)), draws=200))["ece"]
    assert low.value == pytest.approx(0.25, abs=0.02) and low.low < low.value < low.high


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=60), st.integers(1, 12))
def test_equal_confidences_share_a_bin_and_bins_are_in_order(values: list[float], bins: int) -> None:
    place, made = equal_mass(np.array(values), bins)
    assert made <= bins and set(place.tolist()) == set(range(made))
    for value in set(values):
        assert len({int(b) for b, v in zip(place, values, strict=True) if v == value}) == 1
    order = np.argsort(values, kind="stable")
    assert (np.diff(place[order]) >= 0).all()


def test_distinct_confidences_fill_bins_equally() -> None:
    place, made = equal_mass(np.linspace(0, 1, 100), 10)
    assert made == 10 and np.bincount(place).tolist() == [10] * 10


def test_small_bins_and_one_outcome_are_caveats_and_what_does_not_fit_is_refused() -> None:
    notes = calibration(table([0.5, 0.5, 0.5], [1, 1, 1]))[0].caveats
    assert any("bins instead of" in note for note in notes) and any("every outcome" in note for note in notes)
    assert any("chance alone" in note for note in notes)
    with pytest.raises(StatisticRefused, match="allowed: 0 to 1"):
        calibration(table([1.2], [1]))
    with pytest.raises(StatisticRefused, match="allowed: 0, 1 and missing"):
        calibration(table([0.2], [3]))
    assert calibration(table([np.nan], [1]))[0].value is None
