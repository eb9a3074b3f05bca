"""The gate that may be looked at after every task keeps its promise, and a test that is looked at as often does not."""

import numpy as np
import pytest
from scipy import stats

from audit.statistics import Table
from audit.statistics.anytime_valid_gate import anytime_valid_gate, bets, spent_alpha
from ledger.errors import StatisticRefused

RUNS, TASKS = 2000, 400


def courses(better: float, worse: float, seed: int):
    u = np.random.default_rng(seed).random((RUNS, TASKS))
    return (u < better).astype(float) - ((u >= better) & (u < better + worse)).astype(float)


def accepted(log_e) -> tuple[float, float]:
    """Share of runs that accept, and the median number of tasks of those that do."""
    reached = log_e >= np.log(20)
    hit = reached.any(axis=1)
    return float(hit.mean()), float(np.median(reached.argmax(axis=1)[hit] + 1)) if hit.any() else float("nan")


def near(share: float) -> float:
    """Three standard errors of the difference of two shares over as many runs."""
    return 3 * (2 * share * (1 - share) / RUNS) ** 0.5


@pytest.mark.parametrize(("bet", "false_accepts"), [("agrapa", 0.0215), ("grid", 0.0315)])
def test_an_equal_candidate_is_accepted_less_often_than_alpha(bet: str, false_accepts: float) -> None:
    share, _ = accepted(bets(courses(0.15, 0.15, 11), alpha=0.05, bet=bet).log_e_n)
    assert share == pytest.approx(false_accepts, abs=near(false_accepts)) and share < 0.05


@pytest.mark.parametrize(("bet", "power", "median"), [("agrapa", 0.81, 170), ("grid", 0.8765, 138)])
def test_ten_points_are_found_in_most_runs(bet: str, power: float, median: float) -> None:
    share, tasks = accepted(bets(courses(0.20, 0.10, 12), alpha=0.05, bet=bet).log_e_n)
    assert share == pytest.approx(power, abs=near(power)) and tasks == pytest.approx(median, abs=15)


@pytest.mark.parametrize(("bet", "median"), [("agrapa", 49), ("grid", 45)])
def test_twenty_points_are_found_in_every_run(bet: str, median: float) -> None:
    share, tasks = accepted(bets(courses(0.25, 0.05, 13), alpha=0.05, bet=bet).log_e_n)
    assert share >= 0.999 and tasks == pytest.approx(median, abs=5)


def test_the_same_candidate_is_never_accepted_and_a_worse_one_hardly_ever() -> None:
    assert accepted(bets(np.zeros((100, TASKS)), alpha=0.05).log_e_n)[0] == 0
    assert accepted(bets(courses(0.10, 0.20, 14), alpha=0.05).log_e_n)[0] <= 0.0005 + 3 * (0.0005 / RUNS) ** 0.5


def test_a_z_test_that_is_looked_at_after_every_task_accepts_a_quarter_of_the_equal_ones() -> None:
    difference = courses(0.15, 0.15, 15)
    seen = np.arange(1, TASKS + 1)
    mean = np.cumsum(difference, axis=1) / seen
    variance = (np.cumsum(difference**2, axis=1) - seen * mean**2)[:, 30:] / (seen - 1)[30:]
    share = float((mean[:, 30:] / np.sqrt(variance / seen[30:]) >= stats.norm.ppf(0.95)).any(axis=1).mean())
    assert share == pytest.approx(0.2515, abs=near(0.2515)) and share > 0.2


def table(difference, task=None) -> Table:
    after = np.array(difference, float)
    names = np.arange(len(after)) if task is None else np.array(task, object)
    return Table({"before": np.maximum(-after, 0), "after": np.maximum(after, 0), "task": names})


def test_the_capital_by_hand() -> None:
    # First nothing is known and nothing is bet; then mean 1/2, square 1: half is bet and 1.5 is won; then 2/3 of which .5 is allowed.
    found = {e.name: e for e in anytime_valid_gate(table([1, 1, 1]))}
    assert found["e_value"].value == pytest.approx(1.5 * 1.5) and found["p_value"].value == pytest.approx(1 / 2.25)
    assert found["accepted_at"].value is None and "not accepted so far" in found["accepted_at"].caveats
    # 1.5^7 = 17.1 is below 20 and 1.5^8 is not, after nine tasks of which the first is no bet.
    assert next(e for e in anytime_valid_gate(table([1] * 9)) if e.name == "accepted_at").value == 9


def test_what_is_worse_is_shown_by_the_opposite_bet() -> None:
    found = {e.name: e for e in anytime_valid_gate(table([-1] * 20))}
    assert found["harmful_at"].value == 9 and found["accepted_at"].value is None and found["e_value"].value == 1.0


def test_several_rows_of_a_task_are_one_bet() -> None:
    once, twice = anytime_valid_gate(table([1] * 6)), anytime_valid_gate(table([1] * 12, [n // 2 for n in range(12)]))
    assert once[0].value == twice[0].value and any("one bet" in note for note in twice[0].caveats)


def test_proposals_share_one_budget() -> None:
    assert sum(spent_alpha(0.05, n) for n in range(1, 5000)) == pytest.approx(0.05, rel=1e-3) and spent_alpha(0.05, 0) == 0.05
    assert anytime_valid_gate(table([1] * 9), proposal=3)[0].controls["threshold"] == pytest.approx(20 * 9 * np.pi**2 / 6)


def test_no_difference_is_a_caveat_and_what_does_not_fit_is_refused() -> None:
    assert any("nothing was bet" in note for note in anytime_valid_gate(table([0, 0]))[0].caveats)
    assert anytime_valid_gate(table([]))[0].value is None
    for wrong in ({"alpha": 1.0}, {"bet": "all"}, {"cap": 1.0}, {"proposal": -1}):
        with pytest.raises(StatisticRefused, match="allowed"):
            anytime_valid_gate(table([1]), **wrong)
    with pytest.raises(StatisticRefused, match="allowed: 0 to 1"):
        anytime_valid_gate(Table({"before": np.array([0.0]), "after": np.array([2.0]), "task": np.array([1])}))
