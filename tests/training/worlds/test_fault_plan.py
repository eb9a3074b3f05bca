"""Plans of faults: read, refused with reasons, and drawn so that nothing else moves them."""

import math
from typing import Any

import pytest

from ledger.bundle import BundleDraft
from ledger.errors import BundleError, SettingsError
from training.worlds.fault_kinds import KINDS
from training.worlds.fault_plan import FaultPlan, check_last_wish, declared_plan, read_plan

CALL_KINDS = (
    "timeout", "permission_denied", "malformed_result", "truncated_result", "slow_answer", "dropped_connection", "duplicate_delivery",
    "corrupted_state",
)  # fmt: skip


def struck(plan: FaultPlan, key: tuple[Any, ...], count: int) -> list[tuple[str, str, int]]:
    return [(strike.fault.kind, strike.where, strike.seed) for index in range(count) for strike in plan.at("call", index, key)]


def a_draft(**spec: Any) -> BundleDraft:
    return BundleDraft(name="b", world="ticket_desk", request={"turns": [[]]}, initial_state={}, spec=spec)


def test_there_are_sixteen_kinds() -> None:
    others = ("wrong_reset", "seed_ignored", "interrupting_user", "changing_user")
    assert (*CALL_KINDS, *others, "call_dropped", "history_cut", "length_stop", "template_drift") == KINDS


def test_a_plan_is_its_json_and_its_id_follows_every_parameter() -> None:
    plan = read_plan([{"kind": "timeout", "at": [2, 5]}, {"kind": "slow_answer", "rate": 0.25, "seconds": 40}])
    assert read_plan(plan.as_json()) == plan
    assert plan.as_json()[0] == {"kind": "timeout", "rate": None, "at": [2, 5], "seconds": 30.0, "executed": False}
    assert (
        plan.plan_id
        == read_plan([{"kind": "timeout", "at": [2, 5], "seconds": 30}, {"kind": "slow_answer", "rate": 0.25, "seconds": 40.0}]).plan_id
    )
    others = [{"kind": "timeout", "at": [2, 5]}, {"kind": "slow_answer", "rate": 0.25, "seconds": 41}]
    assert len({plan.plan_id, read_plan(others).plan_id, read_plan(others[::-1]).plan_id}) == 3
    with pytest.raises(Exception, match="frozen"):
        plan.root = ()


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([], "at least 1 item"),
        ({"kind": "timeout"}, "tuple"),
        ([{"kind": "earthquake", "rate": 0.1}], "earthquake.*'timeout', 'permission_denied'"),
        ([{"kind": "timeout"}], r"0\.timeout.*either rate or at; seen rate None and at \[\]"),
        ([{"kind": "timeout", "rate": 0.1, "at": [1]}], r"either rate or at; seen rate 0\.1 and at \[1\]"),
        ([{"kind": "timeout", "rate": 1.5}], r"0\.timeout\.rate.*seen 1\.5"),
        ([{"kind": "timeout", "rate": 0}], r"0\.timeout\.rate.*seen 0"),
        ([{"kind": "timeout", "at": [-1]}], r"0\.timeout\.at\.0.*seen -1"),
        ([{"kind": "timeout", "at": [1], "second": 3}], r"timeout\.second.*seen 3"),
        ([{"kind": "timeout", "at": [1], "seconds": math.nan}], r"timeout\.seconds"),
        ([{"kind": "slow_answer", "at": [1], "seconds": 0}], r"slow_answer\.seconds"),
        ([{"kind": "timeout", "at": [1]}, {"kind": "slow_answer", "at": [0, 1]}], "call 1 is struck by timeout and by slow_answer"),
        ([{"kind": "dropped_connection", "at": [1], "executed": True}], "executed needs recovered"),
        ([{"kind": "duplicate_delivery", "at": [0], "form": "stale_answer"}], "no earlier answer"),
        ([{"kind": "corrupted_state", "at": [0], "path": "/a", "call": {"name": "x"}}], "either call or path"),
        ([{"kind": "corrupted_state", "at": [0], "path": "a"}], r"corrupted_state\.path"),
        ([{"kind": "wrong_reset", "at": [0]}], r"wrong_reset\.at"),
        ([{"kind": "interrupting_user", "at": [0], "message": "x"}], "from 1 on"),
        ([{"kind": "interrupting_user", "at": [1]}], r"interrupting_user\.message"),
        ([{"kind": "changing_user", "rate": 0.1, "message": "x", "spec": {"a": 1}}], "at with one step"),
        ([{"kind": "changing_user", "at": [1, 2], "message": "x", "spec": {"a": 1}}], "at with one step"),
        ([{"kind": "changing_user", "at": [1], "message": "x"}], r"changing_user\.spec"),
    ],
)
def test_what_is_no_plan_is_refused_naming_the_place_and_the_value(value: Any, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        read_plan(value)


def test_an_exact_fault_strikes_there_and_nowhere_else() -> None:
    plan = read_plan([{"kind": "timeout", "at": [2, 5]}, {"kind": "permission_denied", "at": [3]}])
    assert [(kind, where) for kind, where, _ in struck(plan, (1, "r"), 20)] == [
        ("timeout", "call:2"), ("permission_denied", "call:3"), ("timeout", "call:5"),
    ]  # fmt: skip


def test_a_fault_is_drawn_from_its_own_stream_whatever_else_is_planned() -> None:
    alone = read_plan([{"kind": "timeout", "rate": 0.3}])
    among = read_plan([{"kind": "slow_answer", "rate": 0.9}, {"kind": "timeout", "rate": 0.3}, {"kind": "corrupted_state", "at": [1]}])
    expected = struck(alone, (1, "r"), 200)
    assert [strike for strike in struck(among, (1, "r"), 200) if strike[0] == "timeout"] == expected
    assert struck(alone, (1, "r"), 200) == expected
    assert expected != struck(alone, (2, "r"), 200) != struck(alone, (1, "s"), 200)
    assert len({seed for _, _, seed in expected}) == len(expected)


def test_two_entries_of_one_kind_have_streams_of_their_own() -> None:
    plan = read_plan([{"kind": "timeout", "rate": 0.5}, {"kind": "timeout", "rate": 0.5, "seconds": 60}])
    both = [len(list(plan.at("call", index, (1, "r")))) for index in range(400)]
    assert set(both) == {0, 1, 2}


@pytest.mark.parametrize("kind", CALL_KINDS)
@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_a_rate_is_kept_over_many_seeds(kind: str, rate: float) -> None:
    plan = read_plan([{"kind": kind, "rate": rate}])
    drawn = [bool(list(plan.at("call", index, (seed, "r")))) for seed in range(250) for index in range(8)]
    # Five standard deviations of a binomial with 2,000 draws.
    assert abs(sum(drawn) - rate * 2000) < 5 * math.sqrt(2000 * rate * (1 - rate))


def test_a_declared_plan_is_read_from_the_bundle_and_decides_no_reset() -> None:
    assert declared_plan(a_draft()) is None
    faults = [{"kind": "timeout", "at": [1]}]
    assert declared_plan(a_draft(faults=faults)) == read_plan(faults)
    with pytest.raises(BundleError, match=r"bundle 'b': spec\.faults: 0\.timeout\.rate"):
        declared_plan(a_draft(faults=[{"kind": "timeout", "rate": 2}]))
    with pytest.raises(BundleError, match="declares wrong_reset"):
        declared_plan(a_draft(faults=[{"kind": "wrong_reset"}]))


def test_a_bundle_is_judged_by_the_last_of_its_users_wishes() -> None:
    change = {"kind": "changing_user", "message": "no, P2"}
    plan = read_plan([{**change, "at": [4], "spec": {"priority": "P3"}}, {**change, "at": [2], "spec": {"priority": "P2", "days": 5}}])
    check_last_wish(plan, a_draft(priority="P3", days=5))
    with pytest.raises(BundleError, match="priority = 'P3', its spec 'P2'"):
        check_last_wish(plan, a_draft(priority="P2", days=5))
    with pytest.raises(BundleError, match="days = 5, its spec None"):
        declared_plan(a_draft(priority="P3", faults=plan.as_json()))
