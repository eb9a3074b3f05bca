"""Faults of other row builders that were reported in public, by the ids of the report, each with its right value."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from tests.row_shapes import (
    ASSISTANT,
    END,
    HEAD,
    NEWLINE,
    THINK,
    THOUGHT,
    TOOL,
    TURN,
    USER,
    Calls,
    append_only,
    compaction,
    ids,
    retokenised_tail,
    thinking_stripped,
    tool,
)
from tests.training.test_row_builder import H, random_calls
from training.row_builder import build_rows
from training.rows import BuiltRows, SampledTokens


def rows_of(calls: list[SampledTokens]) -> BuiltRows:
    return build_rows("r", calls)


def test_c1_the_separator_that_nobody_sampled_stands_between_turns_and_is_not_trained() -> None:
    (row,) = rows_of(append_only(2)).rows
    first_end = H + 2 + 5
    assert row.ids_T[first_end - 1 : first_end + 2].tolist() == [END, NEWLINE, TOOL]
    assert row.mask_T[first_end - 1 : first_end + 2].tolist() == [True, False, False]


def test_c1_a_separator_that_one_prompt_drops_is_told_with_its_index() -> None:
    made = Calls()
    made.turn([*made.turn(HEAD, 100), *tool(500)], 110)
    made.turn([*HEAD, *TURN, *range(100, 104), END, *tool(500)[1:], *TURN, *range(110, 114), END, *tool(510)], 120)
    dropped = rows_of(made.made).rows[1]
    assert dropped.diverges_at == H + 2 + 5
    assert rows_of(made.made).rows[0].ids_T[dropped.diverges_at] == NEWLINE
    assert dropped.open_reason == "template"


def test_c2_stripped_thinking_is_a_new_row_with_its_reason_and_all_samples_are_trained() -> None:
    built = rows_of(thinking_stripped())
    assert [row.open_reason for row in built.rows] == ["start", "history_rewritten"]
    assert built.rows[0].ids_T[built.rows[0].mask_T].tolist() == [THINK, 200, 201, 202, THOUGHT, 100, 101, 102, END]
    assert built.rows[1].ids_T[built.rows[1].mask_T].tolist() == [110, 111, 112, 113, END]
    assert built.rows[1].diverges_at == H + 2
    assert built.counters == {"rows_opened:history_rewritten": 1, "rows_opened:start": 1}


def test_c6_a_second_bos_that_the_engine_saw_stays_and_none_is_put_in() -> None:
    made = Calls()
    made.sample([1, 1, 5], [6, END])
    assert rows_of(made.made).rows[0].ids_T.tolist() == [1, 1, 5, 6, END]


@pytest.mark.parametrize("logprobs", [[-0.1, -0.2], [-0.1, -0.2, -0.3, -0.4], []])
def test_c9_logprobs_of_another_length_leave_the_sample_out_and_nothing_is_filled_in(logprobs: list[float]) -> None:
    made = Calls()
    made.sample([5, 6], [7, 8, END], logprobs=np.array(logprobs, np.float32))
    assert rows_of(made.made) == BuiltRows((), {"left_out:logprobs_of_another_length": 1})


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), float("inf")])
def test_c9_logprobs_that_are_no_numbers_leave_the_sample_out(value: float) -> None:
    made = Calls()
    made.sample([5, 6], [7, END], logprobs=np.array([-0.5, value], np.float32))
    assert rows_of(made.made) == BuiltRows((), {"left_out:logprobs_not_finite": 1})


def test_c11_a_sample_without_logprobs_has_none_and_is_counted() -> None:
    made = Calls()
    made.sample([5, 6], [7, END], logprobs=None)
    (row,) = rows_of(made.made).rows
    assert np.isnan(row.logprob_T).all()
    assert row.mask_T.tolist() == [False, False, True, True]
    assert rows_of(made.made).counters["samples_without_logprobs"] == 1


def test_c12_a_shortened_re_tokenised_tail_keeps_the_sampled_ids_and_all_lengths() -> None:
    built = rows_of(retokenised_tail())
    assert built.rows[0].ids_T[built.rows[0].mask_T].tolist() == [100, 101, 102, 103, END]
    for row in built.rows:
        assert len(row.ids_T) == len(row.mask_T) == len(row.logprob_T) == len(row.step_T)


def test_d1_the_mask_is_the_sampled_tokens_and_not_the_observations() -> None:
    (row,) = rows_of(append_only(2)).rows
    sampled = [*range(100, 104), END, *range(110, 114), END]
    assert row.ids_T[row.mask_T].tolist() == sampled
    assert {TOOL, ASSISTANT, USER, NEWLINE}.isdisjoint(row.ids_T[row.mask_T].tolist())
    assert int(row.mask_T.sum()) == 10


def test_d2_who_is_not_trained_is_in_no_mask() -> None:
    calls = [replace(call, trainable=False) for call in append_only(2)]
    (row,) = rows_of(calls).rows
    assert not row.mask_T.any()
    assert row.step_T.max() == 1


@given(random_calls())
def test_d4_masks_steps_and_logprobs_of_a_row_agree(calls: list[SampledTokens]) -> None:
    for row in rows_of(calls).rows:
        assert not (row.mask_T & (row.step_T < 0)).any()
        assert not (~np.isnan(row.logprob_T) & (row.step_T < 0)).any()


def test_d4_a_sample_cut_by_the_token_limit_is_trained_like_any_other() -> None:
    made = Calls()
    made.sample([5, 6], [7, 8, 9], finish_reason="length")
    assert rows_of(made.made).rows[0].mask_T.tolist() == [False, False, True, True, True]


def test_k1_a_compaction_is_linked_to_the_row_that_it_left_and_the_summary_is_trained_in_that() -> None:
    before, after = rows_of(compaction()).rows
    assert (after.open_reason, after.left_row, after.diverges_at) == ("compaction", before.index, H)
    assert before.call_ids[-1] == "c2"
    summary = [300, 301, 302]
    assert before.ids_T[before.mask_T].tolist()[-4:-1] == summary
    assert not set(summary) & set(after.ids_T[after.mask_T].tolist())
    assert set(summary) <= set(after.ids_T.tolist())


def test_k3_turns_after_a_reset_go_on_its_row_and_no_prompt_is_there_twice() -> None:
    calls = compaction()
    history = [*calls[-1].prompt_ids.tolist(), *calls[-1].sampled_ids.tolist()]
    made = Calls(calls)
    for n in range(3):
        history = made.turn([*history, *tool(700 + n)], 140 + 10 * n)
    built = rows_of(made.made)
    assert [len(row.call_ids) for row in built.rows] == [3, 5]
    assert built.counters == {"rows_opened:compaction": 1, "rows_opened:start": 1}


def test_k4_a_second_compaction_is_linked_to_the_first() -> None:
    made = Calls(compaction())
    history = [*made.made[-1].prompt_ids.tolist(), *made.made[-1].sampled_ids.tolist()]
    made.sample([*history, USER, 40, END, NEWLINE, *TURN], [310, 311, END], role="summary")
    made.turn([*HEAD, USER, 310, 311, END, NEWLINE], 150)
    assert [(row.open_reason, row.left_row) for row in rows_of(made.made).rows] == [("start", None), ("compaction", 0), ("compaction", 1)]


def test_k1_a_summary_that_another_model_wrote_is_told_by_its_words_in_the_prompt() -> None:
    calls = [replace(call, participant="summariser", trainable=False) if call.role == "summary" else call for call in compaction()]
    assert [(row.open_reason, row.left_row) for row in rows_of(calls).rows] == [("start", None), ("participant", None), ("compaction", 0)]


def test_a_rejected_branch_and_its_shared_prefix_are_trained_once() -> None:
    made = Calls()
    shared = made.sample([1], [2, 3])
    made.sample([*shared, 4], [5])
    made.sample([*shared, 6], [7])
    trained = sorted(token for row in rows_of(made.made).rows for token in row.ids_T[row.mask_T].tolist())
    assert trained == [2, 3, 5, 7]


def test_prompts_of_one_token_are_rows_and_empty_ones_are_counted() -> None:
    made = Calls()
    made.sample([5], [6])
    made.sample([], [7])
    made.sample([5], [], logprobs=np.zeros(0, np.float32))
    built = rows_of(made.made)
    assert [row.ids_T.tolist() for row in built.rows] == [ids([5, 6]).tolist()]
    assert built.counters == {"left_out:no_prompt_tokens": 1, "left_out:no_sampled_tokens": 1, "rows_opened:start": 1}
