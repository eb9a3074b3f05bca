"""Queries: what the tables say is what was recorded, and every number has its denominator."""

from collections.abc import Callable
from typing import Any

import pytest

from ledger import queries
from ledger.errors import UnknownId
from ledger.ledger import LedgerHandle
from ledger.queries import Filter


def test_a_rewards_line_names_its_task_its_policy_and_its_outcome(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(ledger)
    assert queries.fresh(ledger) > 0
    page = queries.rewards(ledger)
    line = page.lines[0]
    assert (page.total, line.reward_id, line.value, line.rule) == (1, "reward-a", 1.0, "binary")
    assert (line.rollout.bundle, line.rollout.world, line.rollout.policy, line.rollout.outcome) == ("desk_0", "desk", "smol", "succeeded")
    assert line.rollout.verdict_id == "review-a"
    assert queries.reward(ledger, "reward-a") == line


def test_a_filter_keeps_what_fits_and_nothing_else(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.start("first", slot=0)
    history.start("second", slot=1)
    history.end("second", [], "turn_limit")
    queries.fresh(ledger)
    assert [line.rollout_id for line in queries.rollouts(ledger).lines] == ["second", "first"]
    assert [line.rollout_id for line in queries.rollouts(ledger, Filter(outcome="running", world="desk")).lines] == ["first"]
    assert queries.rollouts(ledger, Filter(world="elsewhere")).total == 0
    page = queries.rollouts(ledger, limit=1, offset=1)
    assert (page.total, [line.rollout_id for line in page.lines]) == (2, ["first"])


def test_a_detail_holds_verdicts_calls_and_other_attempts(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.start("early", attempt=1)
    history.end("early", [], "engine_error", superseded=True)
    history.start("late", attempt=2)
    call_id = history.call("late")
    history.verdict("late", "v1", False)
    queries.fresh(ledger)
    detail = queries.rollout_detail(ledger, "late")
    assert [other.rollout_id for other in detail.attempts] == ["early"]
    assert [(call.call_id, call.status, call.sampled_tokens) for call in detail.calls] == [(call_id, "completed", 3)]
    assert [(v.verifier, v.passed, v.counts) for v in detail.verdicts] == [("own_checker", False, True)]
    with pytest.raises(UnknownId, match="nobody"):
        queries.rollout_detail(ledger, "nobody")


def test_coverage_adds_up_to_what_was_dispatched(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.start("judged", slot=0)
    history.end("judged", [])
    history.verdict("judged", "v1", True)
    history.start("replaced", slot=1)
    history.end("replaced", [], "engine_error", superseded=True)
    history.start("replacing", slot=1, attempt=2)
    history.end("replacing", [], "world_error")
    history.start("running", slot=2)
    history.start("uninvited", slot=7)
    queries.fresh(ledger)
    line = queries.coverage(ledger, Filter(experiment_id="exp1"))[0]
    assert (line.expected, line.measured, line.masked, line.failed, line.omitted, line.unknown, line.extra) == (4, 1, 0, 1, 0, 2, 1)
    with pytest.raises(UnknownId, match="outcome"):
        queries.coverage(ledger, Filter(outcome="running"))


def test_a_success_rate_counts_only_what_was_judged(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    for slot, (ended_by, passed) in enumerate([("finished", True), ("finished", False), ("turn_limit", False), ("world_error", None)]):
        history.start(f"r{slot}", slot=slot)
        history.end(f"r{slot}", [], ended_by)
        if passed is not None:
            history.reward(f"r{slot}", f"w{slot}", history.verdict(f"r{slot}", f"v{slot}", passed), float(passed))
    history.reward("r3", "w3", None, None)
    queries.fresh(ledger)
    line = queries.outcomes(ledger)[0]
    assert (line.key, line.rollouts, line.judged, line.faults) == ({"policy": "smol", "world": "desk"}, 4, 3, 1)
    assert line.success_rate == pytest.approx(1 / 3)
    assert (line.rewards, line.mean_reward) == (3, pytest.approx(1 / 3))
    assert queries.outcomes(ledger, by=())[0].rollouts == 4
    missing = queries.missing_rewards(ledger)
    assert [(m.reason, m.derived, m.outcome, m.count) for m in missing] == [("no verdict", True, "env_failed", 1)]
    with pytest.raises(UnknownId, match="colour"):
        queries.outcomes(ledger, by=("colour",))


def test_an_ended_rollout_without_a_reward_is_missing_not_zero(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.start("r0")
    history.end("r0", [])
    queries.fresh(ledger)
    assert [(m.derived, m.outcome, m.count) for m in queries.missing_rewards(ledger)] == [(False, "unknown", 1)]
    assert queries.outcomes(ledger)[0].mean_reward is None


def test_disagreeing_verdicts_are_listed_until_a_person_settles_them(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    for rollout_id, second in (("split", False), ("agreed", True), ("broken", None)):
        history.start(rollout_id)
        history.verdict(rollout_id, f"{rollout_id}-1", True)
        history.verdict(rollout_id, f"{rollout_id}-2", second, own=False)
    queries.fresh(ledger)
    page = queries.disagreements(ledger)
    assert [item.rollout.rollout_id for item in page.lines] == ["split"]
    assert [(v.verifier, v.passed) for v in page.lines[0].verdicts] == [("own_checker", True), ("end_state", False)]
    history.review("split", "review1", "unclear", ["split-1", "split-2"])
    queries.fresh(ledger)
    assert queries.disagreements(ledger, reviewed=False).total == 1
    history.review("split", "review2", "failed", ["split-1", "split-2"])
    queries.fresh(ledger)
    assert queries.disagreements(ledger, reviewed=False).total == 0
    settled = queries.disagreements(ledger, reviewed=True).lines[0]
    assert settled.reviewed
    assert [review.passed for review in settled.reviews] == [None, False]
    assert settled.rollout.passed is False


def test_calls_without_a_rollout_and_without_an_answer_are_listed(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.start("r0")
    lost = history.call(None)
    cut_off = history.call("r0", answered=False)
    queries.fresh(ledger)
    assert [call.call_id for call in queries.unattributed_calls(ledger).lines] == [lost]
    assert [(call.call_id, call.status) for call in queries.dangling_calls(ledger).lines] == [(cut_off, None)]


def test_events_are_read_by_range_kind_and_stream(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(ledger)
    last = queries.fresh(ledger)
    kinds = queries.event_counts(ledger)
    assert kinds["ModelCalled"] == 2
    assert sum(kinds.values()) == len(queries.events(ledger, limit=1000))
    newest = queries.events(ledger, limit=1, newest=True)[0]
    assert (newest.position, newest.kind, newest.body["decision"]) == (last, "ReviewDecided", "passed")
    assert {e.kind for e in queries.events(ledger, kinds=["ToolCalled"])} == {"ToolCalled"}
    assert [e.version for e in queries.events(ledger, stream="rollout-rollout-a")] == list(range(1, 9))
    assert queries.events(ledger, since=newest.position - 1, until=newest.position) == [newest]


def test_a_unique_prefix_is_an_id_and_others_name_the_candidates(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    for rollout_id in ("abc", "abcd", "xyz"):
        history.start(rollout_id)
    queries.fresh(ledger)
    assert queries.resolve(ledger, "rollout", "x") == "xyz"
    assert queries.resolve(ledger, "rollout", "abc") == "abc"
    assert queries.resolve_any(ledger, "xy") == ("rollout", "xyz")
    with pytest.raises(UnknownId, match="abc, rollout abcd"):
        queries.resolve(ledger, "rollout", "ab")
    with pytest.raises(UnknownId, match="no rollout"):
        queries.resolve(ledger, "rollout", "q")
    with pytest.raises(UnknownId, match="no noun 'fish'"):
        queries.resolve(ledger, "fish", "q")


def test_choices_are_the_values_that_occur(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(ledger)
    queries.fresh(ledger)
    found = queries.choices(ledger)
    assert (found.policy, found.world, found.round, found.outcome) == (("smol",), ("desk",), (0,), ("succeeded",))
