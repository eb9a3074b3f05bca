"""Agreement beyond chance: textbook values, what was not joined is an error, and a judge's errors by a person's labels."""

import numpy as np
import pytest

from audit.statistics import Table
from audit.statistics._agreement import kappa_variance
from audit.statistics.cohen_kappa import cohen_kappa
from audit.statistics.fleiss_kappa import fleiss_kappa
from audit.statistics.judge_human import judge_human
from ledger.errors import StatisticRefused

FLEISS = [
    [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
]  # fmt: skip


def two(first, second, **columns) -> Table:
    return Table({"first": np.array(first, object), "second": np.array(second, object), **columns})


def counted(yes_yes: int, yes_no: int, no_yes: int, no_no: int) -> Table:
    sizes = (yes_yes, yes_no, no_yes, no_no)
    return two(np.repeat(["yes", "yes", "no", "no"], sizes).tolist(), np.repeat(["yes", "no", "yes", "no"], sizes).tolist())


def long(counts) -> Table:
    rows = [
        (item, rater, f"c{label}")
        for item, row in enumerate(counts)
        for rater, label in enumerate(np.repeat(range(len(row)), row).tolist())
    ]
    return Table({name: np.array([row[place] for row in rows], object) for place, name in enumerate(("item", "rater", "label"))})


def test_cohen_s_kappa_of_the_textbook() -> None:
    found = cohen_kappa(counted(20, 5, 10, 15))[0]
    assert found.value == pytest.approx(0.4) and (found.controls["agreement"], found.controls["expected"]) == pytest.approx((0.7, 0.5))


def test_the_large_sample_variance_of_the_textbook() -> None:
    # Fleiss, Levin and Paik, Statistical Methods for Rates and Proportions, section 18.1: kappa .676, s.e. .088.
    table = np.array([[75, 1, 4], [5, 4, 1], [0, 0, 10]], float)
    assert kappa_variance(table) ** 0.5 == pytest.approx(0.088, abs=5e-4)


def test_fleiss_kappa_of_1971() -> None:
    found = fleiss_kappa(long(FLEISS))
    assert found[0].value == pytest.approx(0.210, abs=5e-4) and found[0].low < 0.21 < found[0].high
    assert found[0].controls["agreement"] == pytest.approx(0.378, abs=5e-4) and found[0].controls["expected"] == pytest.approx(
        0.213, abs=5e-4
    )
    assert {e.name for e in found[1:]} == {f"agreement:c{n}" for n in range(5)}


def test_raters_who_always_agree_have_one_and_independent_ones_have_none() -> None:
    rng = np.random.default_rng(0)
    said = rng.choice(["a", "b", "c"], 3000)
    assert cohen_kappa(two(said.tolist(), said.tolist()), draws=100)[0].value == 1
    assert cohen_kappa(two(said.tolist(), rng.choice(["a", "b", "c"], 3000).tolist()), draws=100)[0].value == pytest.approx(0, abs=0.05)
    assert fleiss_kappa(long([[3, 0], [0, 3]] * 20), draws=100)[0].value == 1


def test_j5_an_item_that_was_not_joined_is_an_error_not_a_disagreement() -> None:
    with pytest.raises(StatisticRefused, match="1 of 2 items have no second, the first is row 1"):
        cohen_kappa(two(["yes", "no"], ["yes", None]))
    with pytest.raises(StatisticRefused, match="holds 'yess'; allowed: 'yes', 'no'"):
        cohen_kappa(two(["yes", "no"], ["yess", "no"]), labels=("yes", "no"))
    open_ended = cohen_kappa(two(["yes", "no", "no"], ["yess", "no", "no"]))[0]
    assert any("'yes', 'yess'" in note for note in open_ended.caveats)
    with pytest.raises(StatisticRefused, match="human"):
        judge_human(Table({"judge": np.array([1.0, 0]), "human": np.array([1.0, np.nan])}))


def test_copies_of_items_in_a_bundle_leave_the_clustered_interval_and_narrow_the_plain_one() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.choice(["a", "b"], 80).tolist(), rng.choice(["a", "b"], 80).tolist()
    once = {e.method: e for e in cohen_kappa(two(first, second, bundle=np.arange(80)))}
    again = {e.method: e for e in cohen_kappa(two(first * 2, second * 2, bundle=np.tile(np.arange(80), 2)))}
    assert again["cluster_bootstrap"].width == pytest.approx(once["cluster_bootstrap"].width)
    assert again["large_sample"].width < once["large_sample"].width
    assert any("taken as independent" in note for note in again["large_sample"].caveats)


def test_one_label_has_no_kappa_and_a_common_one_is_a_caveat() -> None:
    assert cohen_kappa(counted(9, 0, 0, 0))[0].value is None and fleiss_kappa(long([[3, 0]] * 4))[0].value is None
    common = cohen_kappa(counted(97, 2, 1, 0))[0]
    assert any("chance agrees" in note for note in common.caveats)


def test_ratings_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(StatisticRefused, match="one rating"):
        fleiss_kappa(long([[2, 0], [1, 0]]))
    twice = Table({"item": np.array([1, 1]), "rater": np.array([1, 1]), "label": np.array(["a", "b"], object)})
    with pytest.raises(StatisticRefused, match="same rater"):
        fleiss_kappa(twice)


def test_j2_a_judge_s_errors_by_a_person_s_labels() -> None:
    # Of ten that failed the judge passes three; of ten that passed it fails one.
    judge, human = [1] * 3 + [0] * 7 + [1] * 9 + [0], [0] * 10 + [1] * 10
    found = {e.name: e for e in judge_human(Table({"judge": np.array(judge, float), "human": np.array(human, float)}))}
    assert (found["false_positive_rate"].value, found["false_negative_rate"].value, found["agreement"].value) == (0.3, 0.1, 0.8)
    assert found["kappa"].value == pytest.approx(0.6) and found["false_positive_rate"].low < 0.3 < found["false_positive_rate"].high
    assert any("not accuracy" in note for note in found["agreement"].caveats)


def test_j2_a_queue_of_suspicious_items_and_a_class_that_is_empty_are_caveats() -> None:
    found = judge_human(Table({"judge": np.array([1.0, 1]), "human": np.array([1.0, 1]), "queued": np.array([1.0, 0])}))
    rates = {e.name: e for e in found}
    assert rates["false_positive_rate"].value is None and any("failed nothing" in note for note in rates["false_positive_rate"].caveats)
    assert any("1 of 2 items were labelled because" in note for note in rates["agreement"].caveats)
