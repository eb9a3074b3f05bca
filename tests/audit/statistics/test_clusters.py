import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.statistics import Table, statistics
from audit.statistics.success_rate import success_rate, wilson
from ledger.errors import StatisticRefused


def by_method(estimates):
    return {estimate.method: estimate for estimate in estimates}


def table(passed, bundle, **columns):
    return Table({"passed": np.array(passed, float), "bundle": np.array(bundle, object), **columns})


def test_wilson_is_what_its_formula_gives_by_hand() -> None:
    # p = .8, n = 10, z = 1.959964: centre .7167, half width .2266.
    low, high = wilson(8, 10, level=0.95)
    assert (low, high) == pytest.approx((0.490162, 0.943318), abs=1e-6)
    assert wilson(0, 10, level=0.95)[0] == 0.0 and wilson(0, 10, level=0.95)[1] == pytest.approx(0.277533, abs=1e-6)


def test_with_one_row_a_cluster_the_robust_interval_is_student_s() -> None:
    values = [0.2, 0.5, 0.9, 1.4]
    found = statistics.bind("mean_value").call(Table({"value": np.array(values), "bundle": np.arange(4)}))[0]
    mean, error = np.mean(values), np.std(values, ddof=1) / 2
    assert (found.value, found.low, found.high) == pytest.approx((mean, mean - 3.182446 * error, mean + 3.182446 * error), abs=1e-6)


def test_the_robust_interval_by_hand_of_two_clusters() -> None:
    # Residual sums: +1 and -1; variance 2/1 * 2 / 16 = .25; t with one degree of freedom is 12.7062.
    values = Table({"value": np.array([1.0, 1, 0, 0]), "bundle": np.array(["a", "a", "b", "b"], object)})
    found = by_method(statistics["mean_value"](values))["cluster_robust:bundle"]
    assert (found.value, found.high - found.value) == pytest.approx((0.5, 12.706205 * 0.5), abs=1e-5)
    share = by_method(success_rate(table([1, 1, 0, 0], ["a", "a", "b", "b"]), draws=0))["cluster_robust:bundle"]
    assert (share.low, share.high) == (0.0, 1.0)


def test_copies_of_every_row_tell_nothing_new_to_the_clustered_intervals_and_narrow_wilson_s() -> None:
    passed, bundle = [1, 0, 1, 1, 0, 1], list("abcdef")
    once, twice = success_rate(table(passed, bundle)), success_rate(table(passed * 2, bundle * 2))
    for method in ("cluster_robust:bundle", "cluster_bootstrap:bundle"):
        assert by_method(once)[method].width == pytest.approx(by_method(twice)[method].width, rel=1e-9)
    assert by_method(twice)["wilson"].width < by_method(once)["wilson"].width
    assert twice[0].method != "wilson"
    assert "rows of one cluster are taken as independent" in by_method(twice)["wilson"].caveats


def test_the_first_estimate_has_the_widest_interval_and_names_wilson_s_ends() -> None:
    found = success_rate(table([1, 0] * 30, [n // 2 for n in range(60)]))
    assert found[0].width == max(estimate.width for estimate in found)
    assert {"wilson_low", "wilson_high", "clusters"} <= set(found[0].controls) or found[0].method == "wilson"


def test_where_every_row_says_the_same_the_number_of_clusters_bounds_the_rate() -> None:
    found = success_rate(table([1] * 40, [n // 4 for n in range(40)]))
    assert found[0].method == "wilson" and found[0].low == pytest.approx(wilson(10, 10, level=0.95)[0])
    assert "every row says the same; Wilson's interval is over the 10 clusters" in found[0].caveats


def test_missing_is_not_zero_and_is_counted() -> None:
    found = success_rate(table([1, np.nan, 1, 0], list("abcd")))
    assert all(estimate.value == pytest.approx(2 / 3) and estimate.n == 3 for estimate in found)
    assert all("1 of 4 rows have no passed and are left out" in estimate.caveats for estimate in found)
    empty = success_rate(table([np.nan], ["a"]))
    assert [(estimate.value, estimate.n) for estimate in empty] == [(None, 0)]


def test_a_draw_of_clusters_of_different_sizes_is_still_a_mean() -> None:
    # Two clusters of 9 and 1 rows: a draw has both, or one of them twice, so it is .9, 1 or 0.
    found = by_method(success_rate(table([1] * 9 + [0], ["a"] * 9 + ["b"]), level=0.9))["cluster_bootstrap:bundle"]
    assert (found.low, found.value, found.high) == (0.0, 0.9, 1.0)
    values = Table({"value": np.array([1.0] * 9 + [0]), "bundle": np.array(["a"] * 9 + ["b"], object)})
    drawn = by_method(statistics["mean_value"](values, draws=400, level=0.9))["cluster_bootstrap:bundle"]
    assert (drawn.low, drawn.high) == (0.0, 1.0)


def test_few_clusters_and_a_single_seed_are_caveats() -> None:
    one_seed = {"seed": np.zeros(4)}
    found = by_method(success_rate(table([1, 0, 1, 0], list("abcd"), **one_seed), cluster=("bundle", "seed")))
    assert "only 4 clusters by bundle: below 30 the interval tends to be too narrow" in found["cluster_robust:bundle"].caveats
    assert found["cluster_robust:seed"].low is None
    assert found["cluster_robust:seed"].caveats == ("one seed: no interval can say how much another would differ",)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5)), min_size=2, max_size=40))
def test_the_rate_lies_in_its_intervals_and_the_draws_repeat(rows: list[tuple[int, int]]) -> None:
    given_table = table([passed for passed, _ in rows], [bundle for _, bundle in rows])
    found = success_rate(given_table, draws=200)
    assert found == success_rate(given_table, draws=200)
    for estimate in found:
        if estimate.low is not None and estimate.method != "cluster_bootstrap:bundle":
            assert estimate.low - 1e-12 <= estimate.value <= estimate.high + 1e-12


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: success_rate(table([0.5], ["a"])), r"holds \[0.5\]; allowed: 0, 1 and missing"),
        (lambda: success_rate(Table({"bundle": np.array(["a"])})), "no column 'passed'; it has bundle"),
        (lambda: success_rate(table([1], ["a"]), level=95), "level is 95"),
        (lambda: success_rate(table([1], ["a"]), draws=7), "draws is 7; allowed: 100 to"),
        (lambda: Table({"a": np.zeros(2), "b": np.zeros(3)}), "allowed: one dimension and one length"),
        (lambda: Table({"passed": np.array(["x"])}).numbers("passed"), "holds <U1 with values such as"),
        (lambda: Table({"passed": np.array([np.inf])}).numbers("passed"), "allowed: finite numbers"),
    ],
)
def test_what_does_not_fit_is_refused(call, said: str) -> None:
    with pytest.raises(StatisticRefused, match=said):
        call()
