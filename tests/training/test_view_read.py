"""A round read from the ledger: rows, steps, outcomes and rewards, each joined by the id of its rollout."""

import time
from dataclasses import replace

import numpy as np
import pytest

from ledger.errors import UnknownId
from ledger.events import ModelVersionPublished, RewardDerived
from ledger.ledger import LedgerHandle
from tests.round_histories import Told, write_round
from tests.row_shapes import HEAD, SHAPES, Calls, append_only, compaction, sub_agent, tool
from tests.update_histories import digest
from training.row_builder import build_rows
from training.version_lags import version_lags
from training.view_read import read_round


def test_rows_read_back_are_those_of_the_calls_that_were_written(ledger: LedgerHandle) -> None:
    shapes = {f"r{n}": make() for n, make in enumerate(SHAPES.values())}
    write_round(ledger, [Told(rollout_id, calls) for rollout_id, calls in shapes.items()])
    found = read_round(ledger, list(shapes), rule="outcome")
    for built, (rollout_id, calls) in zip(found.built, shapes.items(), strict=True):
        wanted = build_rows(rollout_id, calls)
        assert built.counters == wanted.counters
        for row, other in zip(built.rows, wanted.rows, strict=True):
            for name in ("ids_T", "mask_T", "logprob_T", "step_T"):
                np.testing.assert_array_equal(getattr(row, name), getattr(other, name))
            assert (row.open_reason, row.diverges_at, row.left_row) == (other.open_reason, other.diverges_at, other.left_row)
            assert row.call_ids == tuple(f"{rollout_id}.{call_id}" for call_id in other.call_ids)


def test_columns_say_of_each_token_whose_and_which_steps_it_is(ledger: LedgerHandle) -> None:
    write_round(ledger, [Told("a", sub_agent()), Told("b", append_only(2), slot=1, parent=("a", 3))])
    found = read_round(ledger, ["b", "a"], rule="outcome")
    view = found.view
    assert view.rollout_id_R == ("b", "a")
    assert view.fork_R == ("a@3", "")
    assert view.model_version_R == ("policy-1", "policy-1")
    assert view.call_id_S == ("b.c0", "b.c1", "a.c0", "a.c3")
    assert view.rollout_S.tolist() == [0, 0, 1, 1]
    assert view.rollout_Q.tolist() == [0, 1]
    assert len(view.id_T) == len(view.row_T) == len(view.step_T) == len(view.mask_T) == len(view.behaviour_logprob_T)
    assert (view.mask_T == (view.step_T >= 0)).all()
    assert (view.rollout_S[view.step_T[view.mask_T]] == view.rollout_T[view.mask_T]).all()
    assert np.isnan(view.behaviour_logprob_T[~view.mask_T]).all()
    assert len(found.built[1].rows) == 2
    assert found.counters["rows_that_train_nothing"] == 1
    assert not view.text_only_Q.any()


def test_b12_rewards_are_joined_by_rollout_and_not_by_position(ledger: LedgerHandle) -> None:
    told = [Told(f"r{n}", append_only(1), slot=n, reward=float(n), passed=n > 0) for n in range(4)]
    write_round(ledger, [told[2], told[0], told[3], told[1]])
    for order in (["r0", "r1", "r2", "r3"], ["r3", "r1", "r0", "r2"]):
        found = read_round(ledger, order, rule="outcome")
        assert found.reward.value_R == tuple(float(rollout_id[1]) for rollout_id in order)
        assert found.reward_id_R == tuple(f"w.{rollout_id}" for rollout_id in order)
        assert found.view.outcome_R == tuple("task_failed" if rollout_id == "r0" else "succeeded" for rollout_id in order)
        assert found.reward.terms == {"share": (0.5,) * 4}


def test_a_missing_reward_stays_missing(ledger: LedgerHandle) -> None:
    write_round(ledger, [
        Told("none", append_only(1), reward=None), Told("absent", append_only(1), slot=1, reward="absent"),
        Told("zero", append_only(1), slot=2, reward=0.0, passed=False),
    ])  # fmt: skip
    found = read_round(ledger, ["none", "absent", "zero"], rule="outcome")
    assert found.reward.value_R == (None, None, 0.0)
    assert found.reward.reason_R == ("said by the test", "no reward was derived", "said by the test")
    assert found.reward_id_R == ("w.none", None, "w.zero")
    assert read_round(ledger, ["zero"], rule="another").reward.value_R == (None,)


def test_the_newest_reward_of_the_rule_counts_and_one_without_a_verdict_does_not(ledger: LedgerHandle) -> None:
    write_round(ledger, [Told("r", append_only(1)), Told("s", append_only(1), slot=1)])
    again = {"rollout_id": "r", "rule": "outcome", "rule_id": digest("rule"), "reason": "judged again"}
    ledger.append([
        ledger.new(RewardDerived(reward_id="w2", verdict_ids=["v2"], value=0.25, **again)),
        ledger.new(RewardDerived(reward_id="w3", verdict_ids=["v2"], value=0.75, **{**again, "rule": "other"})),
        ledger.new(RewardDerived(reward_id="w4", verdict_ids=[], value=1.0, **{**again, "rollout_id": "s"})),
    ])  # fmt: skip
    found = read_round(ledger, ["r", "s"], rule="outcome")
    assert found.reward.value_R == (0.25, None)
    assert found.reward.reason_R[1] == "no verdict behind the reward"
    assert found.counters["reward_of_another_verdict"] == 2
    assert read_round(ledger, ["r"]).reward.value_R == (0.75,)


def test_a_step_has_the_state_before_its_first_tool_call_and_the_class_of_its_error(ledger: LedgerHandle) -> None:
    tools = {"c0": [("s0", "s1", None), ("s1", "s2", "bad_arguments")], "c2": [("s2", "s3", None)]}
    write_round(ledger, [Told("r", append_only(4), tools=tools)])
    view = read_round(ledger, ["r"]).view
    assert view.state_S == (digest("s0"), digest("s2"), digest("s2"), digest("s3"))
    assert view.error_S == ("bad_arguments", "", "", "")
    assert view.reward_S.tolist() == [0.0] * 4


def test_a_scripted_rollout_has_no_rows_and_is_counted(ledger: LedgerHandle) -> None:
    write_round(ledger, [Told("r", append_only(3), scripted=True)])
    found = read_round(ledger, ["r"])
    assert found.built[0].rows == ()
    assert found.view.rollout_Q.tolist() == []
    assert found.view.id_T.dtype == np.int32
    assert found.counters == {"left_out:no_token_ids": 3}
    assert found.reward.value_R == (1.0,)


@pytest.mark.parametrize(
    ("sampling", "processed"),
    [
        ({"temperature": 1.0, "top_p": 1.0, "top_k": -1, "guided": False, "max_tokens": 9}, ()),
        ({}, ()),
        ({"temperature": 0.7}, ("temperature 0.7 (processed_logprobs)",)),
        ({"temperature": 0.0}, ("temperature 0.0 (processed_logprobs)",)),
        ({"top_p": 0.9, "logit_bias_count": 2}, ("logit_bias (processed_logprobs)", "top_p 0.9 (processed_logprobs)")),
        ({"guided": True}, ("guided (processed_logprobs)",)),
    ],
)
def test_sampling_off_the_plain_distribution_is_marked(
    ledger: LedgerHandle, sampling: dict[str, float], processed: tuple[str, ...]
) -> None:
    write_round(ledger, [Told("r", append_only(2), sampling=sampling)])
    found = read_round(ledger, ["r"])
    assert found.processed_R == (processed,)
    assert found.counters.get("processed:processed_logprobs", 0) == (2 if processed else 0)


def test_a_rewrite_belongs_to_the_next_call_that_is_no_summary(ledger: LedgerHandle) -> None:
    calls = compaction()
    write_round(ledger, [
        Told("r", [*calls[:3], replace(calls[3], rewritten="thinking_stripped"), calls[4]]),
        Told("s", [*calls[:2], replace(calls[2], rewritten="thinking_stripped"), *calls[3:]], slot=1),
    ])  # fmt: skip
    for built in read_round(ledger, ["r", "s"]).built:
        assert [row.open_reason for row in built.rows] == ["start", "history_rewritten"]


def test_the_lag_of_a_step_is_that_of_the_oldest_version_that_sampled_in_it(ledger: LedgerHandle) -> None:
    parents = {"policy-0": None, "policy-1": "policy-0", "policy-2": "policy-1", "policy-3": "policy-2", "other": None}
    ledger.append([
        ledger.new(ModelVersionPublished(
            model_version=version, name="policy", weights_digest=digest(version), tokenizer_digest=None, template_digest=None, scripted=False,
            parent=parent,
        ))
        for version, parent in parents.items()
    ])  # fmt: skip
    # The second call crossed a refresh; nobody recorded who sampled the third one of b.
    write_round(ledger, [
        Told("a", append_only(3), version="policy-3", served={"c0": ["policy-2"], "c1": ["policy-1", "policy-2"]}),
        Told("b", append_only(3), slot=1, version="other", served={"c1": ["policy-3", "unpublished"], "c2": []}),
        Told("c", append_only(1), slot=2, version="policy-3"),
    ])  # fmt: skip
    view = read_round(ledger, ["c", "a", "b"], trained="policy-3").view
    np.testing.assert_array_equal(view.lag_S, [0, 1, 2, 0, np.nan, np.nan, np.nan])
    assert version_lags(ledger, "policy-3", {"policy-0", "other", "policy-3"}) == {"policy-0": 3, "policy-3": 0}
    # What came after the version that is trained is none of its ancestors.
    assert version_lags(ledger, "policy-1", {"policy-2"}) == {}
    assert not len(read_round(ledger, ["c"]).view.lag_S)


def test_unknown_and_doubled_rollouts_are_refused(ledger: LedgerHandle) -> None:
    write_round(ledger, [Told("r", append_only(1))])
    with pytest.raises(UnknownId, match="no rollout 'x'"):
        read_round(ledger, ["r", "x"])
    with pytest.raises(UnknownId, match="'r' is named twice"):
        read_round(ledger, ["r", "r"])
    assert read_round(ledger, []).view.rollouts == 0


def test_a_round_of_128_rollouts_reads_in_well_under_a_second(ledger: LedgerHandle) -> None:
    tools = {f"c{n}": [("a", "b", None)] for n in range(7)}
    write_round(ledger, [Told(f"r{n}", append_only(7), slot=n, tools=tools) for n in range(128)])
    wanted = [f"r{n}" for n in range(128)]
    read_round(ledger, wanted[:1], rule="outcome")
    spent = []
    for _ in range(3):
        begun = time.process_time()
        assert read_round(ledger, wanted, rule="outcome").view.rollouts == 128
        spent.append(time.process_time() - begun)
    assert min(spent) < 1.0


def test_calls_of_one_participant_interleave_without_mixing_rollouts(ledger: LedgerHandle) -> None:
    made = Calls()
    main = made.turn(HEAD, 100)
    made.turn([4, 60, 2, 3], 200, participant="searcher")
    made.turn([*main, *tool(500)], 110)
    write_round(ledger, [Told("a", made.made), Told("b", made.made, slot=1)])
    found = read_round(ledger, ["a", "b"])
    assert found.view.rollout_Q.tolist() == [0, 1]
    assert [row.call_ids for row in found.built[1].rows] == [("b.c0", "b.c2"), ("b.c1",)]
