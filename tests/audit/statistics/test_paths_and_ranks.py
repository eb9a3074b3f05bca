"""Critical path against total work, distance of distributions, and the order of systems under several judges."""

import numpy as np
import pytest
from scipy import stats

from audit.statistics import Table
from audit.statistics.critical_path import critical_path
from audit.statistics.kolmogorov_smirnov import kolmogorov_smirnov
from audit.statistics.rank_stability import rank_stability
from ledger.errors import StatisticRefused

# S14: main stages of 2, 1 and 3 with sub-agents of 5, 3, 4 after the first and 2, 2 after the third.
PARL = [
    ("m1", 2, ""), ("a1", 5, "m1"), ("a2", 3, "m1"), ("a3", 4, "m1"), ("m2", 1, "a1, a2, a3"), ("m3", 3, "m2"), ("b1", 2, "m3"), ("b2", 2, "m3"),
]  # fmt: skip


def work(rows, **columns) -> Table:
    return Table({
        "task": np.array([row[0] for row in rows], object), "duration": np.array([row[1] for row in rows], float),
        "after": np.array([row[2] for row in rows], object), **columns,
    })  # fmt: skip


def values(found):
    return {estimate.name: estimate.value for estimate in found}


def test_aud_26_s14_the_path_is_13_of_22_and_both_are_given() -> None:
    found = critical_path(work(PARL), unit="steps")
    assert values(found) == {"critical_path": 13, "total_work": 22, "parallelism": pytest.approx(22 / 13)}
    assert found[0].controls["total_work"] == 22 and any("no cost" in note for note in found[0].caveats)


def test_a_chain_has_no_parallelism_and_the_path_never_exceeds_the_work() -> None:
    chain = [(f"t{n}", 1.5, f"t{n - 1}" if n else "") for n in range(5)]
    assert values(critical_path(work(chain)))["parallelism"] == 1.0
    free = [(name, length, "") for name, length, _ in PARL]
    assert values(critical_path(work(free)))["critical_path"] == 5
    assert any("dependencies may be missing" in note for note in critical_path(work(free))[0].caveats)


def test_measured_starts_give_the_makespan_and_an_early_start_is_told() -> None:
    found = critical_path(work([("a", 2, ""), ("b", 1, "a")], start=np.array([0.0, 1.0]), cost=np.array([3.0, np.nan])))
    assert values(found)["makespan"] == 2.0
    assert any("'b'" in note for note in found[0].caveats) and any("1 tasks have no cost" in note for note in found[0].caveats)


@pytest.mark.parametrize(
    ("rows", "said"),
    [([("a", 1, "a")], "circle"), ([("a", 1, "z")], "'z'"), ([("a", 1, ""), ("a", 1, "")], "twice"), ([("a", -1, "")], "-1")],
)
def test_work_without_an_order_is_refused(rows, said: str) -> None:
    with pytest.raises(StatisticRefused, match=said):
        critical_path(work(rows))


def lengths(kept, dropped, **columns) -> Table:
    return Table(
        {
            "value": np.array([*kept, *dropped], float),
            "group": np.array(["kept"] * len(kept) + ["dropped"] * len(dropped), object),
            **columns,
        }
    )


def test_the_distance_by_hand() -> None:
    # Up to 2 lie both kept and none of the two dropped; p is 2 / C(4, 2).
    found = values(kolmogorov_smirnov(lengths([1, 2], [3, 4])))
    assert found == {"ks_distance": 1.0, "p_value": pytest.approx(1 / 3), "median_difference": 2.0}


def test_groups_of_one_distribution_are_not_told_apart_and_longer_ones_are() -> None:
    rng = np.random.default_rng(4)
    same, more = rng.exponential(size=300), rng.exponential(size=300)
    assert values(kolmogorov_smirnov(lengths(same, more)))["p_value"] > 0.01
    assert values(kolmogorov_smirnov(lengths(same, more + 1)))["p_value"] < 1e-6


def test_ties_clusters_and_small_groups_are_caveats_and_a_third_group_is_refused() -> None:
    notes = kolmogorov_smirnov(lengths([1, 1], [2, 3], bundle=np.array([1, 1, 2, 2])))[0].caveats
    assert len(notes) == 3 and any("tied" in note for note in notes) and any("one bundle" in note for note in notes)
    with pytest.raises(StatisticRefused, match="exactly two"):
        kolmogorov_smirnov(Table({"value": np.arange(3.0), "group": np.arange(3)}))
    assert kolmogorov_smirnov(lengths([np.nan], [1.0]))[0].value is None


def scored(score_JSI, systems) -> Table:
    score_JSI = np.asarray(score_JSI, float)
    place = np.stack(np.meshgrid(*map(np.arange, score_JSI.shape), indexing="ij"), axis=-1).reshape(-1, 3)
    return Table({
        "judge": np.array([f"judge{j}" for j in place[:, 0]], object), "system": np.array([systems[s] for s in place[:, 1]], object),
        "item": place[:, 2], "score": score_JSI.ravel(),
    })  # fmt: skip


def test_j2_the_order_under_two_judges_by_hand() -> None:
    # Orders a b c and b a c: one of three pairs differs, tau is (2 - 1) / 3.
    found = {e.name: e for e in rank_stability(scored([[[3], [2], [1]], [[2], [3], [1]]], ["a", "b", "c"]))}
    assert found["kendall_tau"].value == pytest.approx(1 / 3) and found["same_first"].value == 0.0
    assert (found["rank:a"].low, found["rank:a"].high, found["rank:c"].value) == (1, 2, 3)


def test_j2_tau_is_that_of_scipy_and_the_interval_holds_it() -> None:
    rng = np.random.default_rng(5)
    score = rng.normal(size=(2, 6, 50)) + np.arange(6)[None, :, None] * 0.2
    found = rank_stability(scored(score, list("abcdef")), draws=200)[0]
    assert found.value == pytest.approx(stats.kendalltau(score[0].mean(axis=1), score[1].mean(axis=1)).statistic)
    assert found.low <= found.value <= found.high


def test_j2_a_judge_that_competes_is_told_and_items_that_somebody_skipped_are_left_out() -> None:
    score = np.array([[[1.0, 5], [2, 1]], [[1, 1], [2, np.nan]]])
    found = rank_stability(scored(score, ["judge0", "b"]))[0]
    assert found.value == 1.0 and found.n == 1
    assert any("also a system" in note for note in found.caveats) and any("1 of 2 items" in note for note in found.caveats)
    with pytest.raises(StatisticRefused, match="two or more"):
        rank_stability(scored([[[1.0]]], ["a"]))
    with pytest.raises(StatisticRefused, match="none of 1 items"):
        rank_stability(scored([[[1.0], [2]], [[np.nan], [1]]], ["a", "b"]))
