"""DAPO's dynamic filter."""

import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, reward_of, rewarded, view_of
from training.filters import Kept, filters
from training.rewards import Scored


def keep(*rolled: Rolled, **params: object) -> Kept:
    return filters.bind("zero_variance", **params).call(view_of(*rolled), (), reward_of(*rolled))


def solved(*rewards: float, group: str) -> tuple[Rolled, ...]:
    return tuple(Rolled(value, (3,), group=group, outcome="succeeded" if value else "task_failed") for value in rewards)


def test_a_group_with_contrast_is_kept_and_one_without_goes_to_refill() -> None:
    kept = keep(*solved(1, 1, 1, 1, group="a"), *solved(1, 0, 1, 0, group="b"))
    assert kept.keep_R.tolist() == [False] * 4 + [True] * 4
    assert kept.reason_R == ("zero_variance",) * 4 + ("",) * 4
    assert kept.route_R == ("refill",) * 4 + ("",) * 4
    assert kept.weight_R.tolist() == [1.0] * 8


def test_what_refilling_costs_is_counted() -> None:
    kept = keep(*solved(1, 1, group="a"), *solved(0, 0, group="b"), *solved(1, 0, group="c"))
    assert kept.counters == {
        "populations_all_succeeded": 1, "populations_all_failed": 1, "populations_tied": 2, "dropped_rollouts": 4, "dropped_tokens": 12
    }  # fmt: skip


def test_where_nothing_succeeded_a_demonstration_may_be_asked_for() -> None:
    kept = keep(*solved(0, 0, group="a"), *solved(1, 1, group="b"), all_failed="demonstration")
    assert kept.route_R == ("demonstration", "demonstration", "refill", "refill")


def test_missing_rewards_make_no_group_equal_and_no_group_unequal() -> None:
    assert keep(*rewarded(1.0, None, None)).keep_R.tolist() == [True] * 3
    kept = keep(*rewarded(1.0, None, 1.0))
    assert kept.keep_R.tolist() == [False, True, False]
    assert kept.counters["dropped_rollouts"] == 2


def test_groups_are_told_apart_by_name_and_not_by_place() -> None:
    kept = keep(Rolled(1.0, group="a"), Rolled(0.0, group="b"), Rolled(1.0, group="a"), Rolled(1.0, group="b"))
    assert kept.keep_R.tolist() == [False, True, False, True]


def test_wrong_input_is_refused() -> None:
    with pytest.raises(MethodError, match="all_failed is 'delete'"):
        keep(*rewarded(1, 0), all_failed="delete")
    with pytest.raises(MethodError, match="1 rewards for 2 rollouts"):
        filters["zero_variance"](view_of(*rewarded(1, 0)), (), Scored((1.0,), ("",)))
    with pytest.raises(MethodError, match="not finite"):
        keep(*rewarded(1.0, float("nan")))
