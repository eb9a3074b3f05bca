import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from audit.statistics import Table
from audit.statistics.increments import increments
from audit.statistics.mcnemar import mcnemar
from audit.statistics.mean_difference_paired import mean_difference_paired
from audit.statistics.paired_bootstrap import paired_bootstrap
from audit.statistics.tail_latency import tail_latency
from ledger.errors import StatisticRefused


def pairs(before, after, task=None, **columns):
    made = {"before": np.array(before, float), "after": np.array(after, float)}
    return Table({**made, "task": np.arange(len(before)) if task is None else np.array(task, object), **columns})


def seeded(gain_ST) -> Table:
    gain_ST = np.asarray(gain_ST, float)
    seeds, tasks = gain_ST.shape
    return pairs(np.zeros(gain_ST.size), gain_ST.ravel(), np.tile(np.arange(tasks), seeds), seed=np.repeat(np.arange(seeds), tasks))


def test_the_seed_level_interval_is_student_s_over_the_seeds_means() -> None:
    # Means .2, .3, .4: mean .3, s.d. .1, t(2) = 4.302653.
    found = mean_difference_paired(seeded([[0.1, 0.3], [0.2, 0.4], [0.3, 0.5]]))
    by_seed = next(estimate for estimate in found if estimate.method == "seed_t")
    half = 4.302653 * 0.1 / 3**0.5
    assert (by_seed.value, by_seed.low, by_seed.high) == pytest.approx((0.3, 0.3 - half, 0.3 + half), abs=1e-6)
    assert by_seed.controls == {"seeds": 3, "tasks": 2} and by_seed.n == 6


def test_the_wider_of_the_two_is_reported() -> None:
    alike = mean_difference_paired(seeded([[0, 1] * 20, [0, 1] * 20, [1, 0] * 20]))
    assert (alike[0].method, alike[1].method) == ("seed_task_bootstrap", "seed_t")
    apart = mean_difference_paired(seeded([[0.0] * 40, [1.0] * 40, [0.5] * 40]))
    assert (apart[0].method, apart[1].method) == ("seed_t", "seed_task_bootstrap")
    assert apart[0].width > apart[1].width


def test_the_two_way_bootstrap_has_the_variance_of_both_ways() -> None:
    rng = np.random.default_rng(3)
    gain_ST = rng.normal(size=(12, 1)) + rng.normal(size=(1, 60))
    low, high = (
        getattr(next(e for e in mean_difference_paired(seeded(gain_ST)) if e.method == "seed_task_bootstrap"), x) for x in ("low", "high")
    )
    expected = (gain_ST.mean(axis=1).var() / 12 + gain_ST.mean(axis=0).var() / 60) ** 0.5
    assert (high - low) / (2 * 1.959964) == pytest.approx(expected, rel=0.05)


def test_one_seed_is_a_caveat_and_the_interval_is_over_tasks() -> None:
    found = mean_difference_paired(pairs([0, 0, 1], [1, 0, 1]))
    assert {estimate.method for estimate in found} == {"task_bootstrap", "task_t"}
    assert all("one seed: the interval is over tasks and says nothing of another training" in e.caveats for e in found)


def test_pairs_that_all_say_the_same_are_a_caveat() -> None:
    alike, apart = mean_difference_paired(pairs([0, 0, 0], [1, 1, 1])), mean_difference_paired(pairs([0, 0, 0], [1, 1, 0]))
    assert alike[0].width == 0 and "every pair differs by the same" in alike[0].caveats[-1]
    assert not any("every pair differs by the same" in note for note in apart[0].caveats)


def test_rows_that_lack_a_side_are_no_pairs() -> None:
    for found in (mean_difference_paired(pairs([0, np.nan, 0], [1, 1, 0])), paired_bootstrap(pairs([0, np.nan, 0], [1, 1, 0]))):
        assert (found[0].value, found[0].n) == (0.5, 2)
        assert "1 of 3 rows lack one side and are no pair" in found[0].caveats
    assert mean_difference_paired(pairs([np.nan], [1]))[0].value is None


def test_both_arms_of_a_draw_have_the_same_tasks() -> None:
    # Whatever the tasks are worth, the gain is 1 on each, so no draw can give another number.
    found = paired_bootstrap(pairs([0, 10, 20], [1, 11, 21]))[0]
    assert (found.low, found.value, found.high) == (1, 1, 1) and found.controls["share_not_above_zero"] == 0


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=2, max_size=20))
def test_exchanged_arms_give_the_opposite_gain(rows: list[tuple[float, float]]) -> None:
    before, after = map(list, zip(*rows, strict=True))
    there, back = paired_bootstrap(pairs(before, after), draws=200)[0], paired_bootstrap(pairs(after, before), draws=200)[0]
    assert (there.value, there.low, there.high) == pytest.approx((-back.value, -back.high, -back.low), abs=1e-9)


def test_mcnemar_by_hand() -> None:
    # 5 gained, 1 lost: two-sided p = 2 * (C(6,0) + C(6,1)) / 2^6 = 14 / 64.
    gain, p_value = mcnemar(pairs([0] * 5 + [1] + [1] * 2 + [0] * 2, [1] * 5 + [0] + [1] * 2 + [0] * 2))
    assert (gain.value, p_value.value, p_value.n, gain.n) == (0.4, pytest.approx(14 / 64), 6, 10)
    assert gain.controls == {"gained": 5, "lost": 1, "both": 2, "neither": 2}
    low = stats.beta.ppf(0.025, 5, 2)
    assert gain.low == pytest.approx(0.6 * (2 * low - 1))


def test_mcnemar_without_flips_says_that_nothing_can_be_told() -> None:
    gain, p_value = mcnemar(pairs([1, 0], [1, 0]))
    assert (gain.value, gain.low, p_value.value) == (0, None, 1) and "no task flipped" in gain.caveats[0]


def test_mcnemar_names_samples_of_one_task_as_dependent_and_refuses_what_is_no_decision() -> None:
    assert "several pairs share a task" in mcnemar(pairs([0, 1], [1, 0], ["a", "a"]))[0].caveats[0]
    with pytest.raises(StatisticRefused, match="other values than 0 and 1"):
        mcnemar(pairs([0.5], [1]))


def chain(**values) -> Table:
    return Table({"stage": np.array(list(values), object), "value": np.array(list(values.values()), float)})


@pytest.mark.parametrize(
    ("values", "parts", "share"),
    [
        ((28.88, 37.00, 41.88), (13.00, 8.12, 4.88), 0.6246),
        ((0.0, 3.16, 6.62), (6.62, 3.16, 3.46), None),
        ((0.0, 11.67, 12.5), (12.5, 11.67, 0.83), None),
    ],
)
def test_the_survey_s_increments_add_up(values, parts, share) -> None:
    found = {estimate.name: estimate.value for estimate in increments(chain(base=values[0], sft=values[1], rl=values[2]))}
    assert [found[name] for name in ("total", "increment:sft", "increment:rl")] == pytest.approx(list(parts), abs=1e-9)
    assert found["increment:sft"] + found["increment:rl"] == pytest.approx(found["total"], abs=1e-12)
    assert share is None or found["share:sft"] == pytest.approx(share, abs=5e-5)


def test_increments_use_the_tasks_that_every_stage_has() -> None:
    rows = [("base", 0, "a"), ("base", 0, "b"), ("sft", 1, "a"), ("sft", 0, "b"), ("sft", 1, "c"), ("rl", 1, "a"), ("rl", 1, "b")]
    table = Table.of([dict(zip(("stage", "value", "task"), row, strict=True)) for row in rows], ("stage", "value", "task"))
    found = {estimate.name: estimate for estimate in increments(table)}
    assert [found[name].value for name in ("total", "increment:sft", "increment:rl")] == [1.0, 0.5, 0.5]
    assert "1 of 3 tasks were not measured at every stage and are left out" in found["total"].caveats
    assert (
        found["total"].method == "task_bootstrap"
        and found["increment:sft"].low == 0.0
        and found["increment:sft"].high == 1.0
        and (found["total"].low, found["total"].high) == (1, 1)
    )


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (chain(base=1, rl=2), "allowed: 'sft' before 'rl'"),
        (chain(base=1), "allowed: two or more"),
        (chain(base=1, sft=np.nan), "1 missing"),
        (
            Table({**chain(base=1, sft=2, rl=4).columns, "claimed": np.array([np.nan, 1, 3])}),
            "claimed to have added 3; its values differ by 2",
        ),
    ],
)
def test_a_chain_that_does_not_add_up_or_skips_a_stage_is_refused(table: Table, said: str) -> None:
    with pytest.raises(StatisticRefused, match=said):
        increments(table)


def latencies(values, bundle=None) -> Table:
    return Table({"latency_s": np.array(values, float), "bundle": np.arange(len(values)) if bundle is None else np.array(bundle)})


def test_quantiles_by_hand_with_the_number_they_rest_on() -> None:
    found = {estimate.name: estimate for estimate in tail_latency(latencies(range(1, 101)))}
    assert {name: found[name].value for name in found} == {"mean": 50.5, "p50": 50, "p95": 95, "p99": 99}
    # Binomial(100, 1/2): P(B <= 39) = .0176 and P(B <= 60) = .9824, so the 40th and the 61st value.
    assert (found["p50"].low, found["p50"].high, found["p50"].n) == (40, 61, 100)
    assert found["p99"].high is None and "n = 100 is too small for an upper end of p99" in found["p99"].caveats[0]


def test_the_order_of_latencies_does_not_matter_and_missing_ones_are_left_out() -> None:
    values = [3.0, 1.0, np.nan, 2.0]
    found = tail_latency(latencies(values))
    assert [e.value for e in found] == [e.value for e in tail_latency(latencies([1.0, 2.0, 3.0]))] and found[1].n == 3
    assert [e.value for e in tail_latency(latencies([np.nan]))] == [None] * 4
    assert "values of one cluster are taken as independent" in tail_latency(latencies([1, 2], ["a", "a"]))[1].caveats
    with pytest.raises(StatisticRefused, match="allowed: 0 or more seconds"):
        tail_latency(latencies([-1]))
