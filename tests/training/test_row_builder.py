"""Rows of the nine shapes, and what holds for rows of any calls."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import TokenError
from tests.row_shapes import END, HEAD, NEWLINE, SHAPES, SYSTEM, TURN, USER, Calls, append_only, compaction, ids, retry, tool
from tests.token_histories import histories
from training.row_builder import build_rows
from training.row_reasons import position
from training.rows import BuiltRows, Row, SampledTokens


def rows_of(calls: Sequence[SampledTokens]) -> BuiltRows:
    return build_rows("r", calls)


def outline(built: BuiltRows) -> list[tuple[str, tuple[str, ...], int | None, int | None]]:
    return [(row.open_reason, row.call_ids, row.left_row, row.diverges_at) for row in built.rows]


H = len(HEAD)
EXPECTED = {
    "append-only": [("start", ("c0", "c1", "c2"), None, None)],
    # The two end with the request's last line break: the turn begins in the one, the summary's message in the other.
    "compaction": [("start", ("c0", "c1", "c2"), None, None), ("compaction", ("c3", "c4"), 0, H)],
    "thinking stripped": [("start", ("c0",), None, None), ("history_rewritten", ("c1",), 0, H + 2)],
    "sub-agent": [("start", ("c0", "c3"), None, None), ("participant", ("c1", "c2"), None, None)],
    "title call first": [("start", ("c0",), None, None), ("start", ("c1", "c2"), None, None)],
    "parallel calls": [("start", ("c0", "c2", "c3"), None, None), ("parallel", ("c1",), 0, H + 7 + 7 + 2)],
    "n > 1": [("start", ("c0",), None, None), ("parallel", ("c1",), 0, H + 2), ("parallel", ("c2",), 1, H + 2)],
    "retry": [("start", ("c1", "c2"), None, None)],
    "re-tokenised tail": [("start", ("c0",), None, None), ("retokenise", ("c1",), 0, H + 4)],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_nine_shapes(shape: str) -> None:
    calls = SHAPES[shape]()
    built = rows_of(calls)
    assert outline(built) == EXPECTED[shape]
    assert_rows_hold(built, calls)
    assert built.counters.get("left_out:superseded", 0) == (shape == "retry")


def assert_rows_hold(built: BuiltRows, calls: Sequence[SampledTokens]) -> None:
    """Every sample of a kept call is in exactly one row at its place, behind exactly the prompt that the engine saw."""
    by_id = {call.call_id: call for call in calls}
    placed = [call_id for row in built.rows for call_id in row.call_ids]
    assert len(placed) == len(set(placed))
    left_out = sum(count for name, count in built.counters.items() if name.startswith("left_out:"))
    assert len(placed) + left_out == len(calls)
    for row in built.rows:
        masked = np.zeros(len(row.ids_T), dtype=bool)
        for n, call in enumerate(by_id[call_id] for call_id in row.call_ids):
            start, end = len(call.prompt_ids), len(call.prompt_ids) + len(call.sampled_ids)
            assert row.ids_T[:start].tolist() == call.prompt_ids.tolist()
            assert row.ids_T[start:end].tolist() == call.sampled_ids.tolist()
            assert (row.step_T[start:end] == n).all()
            masked[start:end] = True
            expected = np.full(end - start, np.nan, np.float32) if call.logprobs is None else call.logprobs
            np.testing.assert_array_equal(row.logprob_T[start:end], expected)
            assert call.participant == row.participant
        assert row.mask_T.tolist() == (masked & by_id[row.call_ids[0]].trainable).tolist()
        assert (row.step_T[~masked] == -1).all()
        assert np.isnan(row.logprob_T[~masked]).all()
        assert masked[-1]


@st.composite
def random_calls(draw: st.DrawFn) -> list[SampledTokens]:
    """Calls of branching histories with few distinct ids, of two participants, some of them retries."""
    calls = []
    for n, call in enumerate(draw(histories(max_calls=8))):
        if call.prompt is None or call.sampled is None:
            continue
        participant = draw(st.sampled_from(["agent", "agent", "judge"]))
        retry_of = draw(st.sampled_from([None, None, None, *(other.call_id for other in calls)]))
        calls.append(SampledTokens(
            f"c{n}", n, participant, "agent", call.prompt, call.sampled, call.logprobs, participant == "agent", retry_of=retry_of
        ))  # fmt: skip
    return calls


@given(random_calls())
def test_every_sampled_token_is_trained_exactly_once_behind_what_the_engine_saw(calls: list[SampledTokens]) -> None:
    built = rows_of(calls)
    assert_rows_hold(built, calls)
    kept = {call_id for row in built.rows for call_id in row.call_ids}
    assert sum(int(row.mask_T.sum()) for row in built.rows) == sum(len(c.sampled_ids) for c in calls if c.trainable and c.call_id in kept)
    assert sum(count for name, count in built.counters.items() if name.startswith("rows_opened:")) == len(built.rows)
    assert all(row.left_row is None or row.left_row != row.index for row in built.rows)


def content(row: Row) -> tuple[str, bytes, bytes]:
    return row.participant, row.ids_T.tobytes(), row.mask_T.tobytes()


@given(random_calls(), st.randoms(use_true_random=False))
def test_rows_do_not_depend_on_the_order_in_which_calls_arrived(calls: list[SampledTokens], random: object) -> None:
    calls = [replace(call, retry_of=None) for call in calls]
    indices = list(range(len(calls)))
    random.shuffle(indices)  # type: ignore[attr-defined]
    shuffled = [replace(call, index=index) for call, index in zip(calls, indices, strict=True)]
    assert sorted(map(content, rows_of(shuffled).rows)) == sorted(map(content, rows_of(calls).rows))


@given(st.integers(1, 20), st.integers(1, 6))
def test_an_append_only_rollout_is_one_row(turns: int, size: int) -> None:
    made, history = Calls(), list(HEAD)
    for n in range(turns):
        history = [*made.turn(history, 100 + n, size=size), *tool(500)]
    built = rows_of(made.made)
    assert [row.open_reason for row in built.rows] == ["start"]
    assert int(built.rows[0].mask_T.sum()) == turns * (size + 1)


@given(random_calls())
def test_there_are_as_few_rows_as_calls_that_nothing_goes_on_from(calls: list[SampledTokens]) -> None:
    calls = [replace(call, retry_of=None) for call in calls if len(call.sampled_ids) and len(call.prompt_ids)]
    wholes: dict[tuple[str, bytes], list[int]] = {}
    for call in calls:
        wholes.setdefault((call.participant, call.prompt_ids.tobytes() + call.sampled_ids.tobytes()), [0])[0] += 1
    goes_on: dict[tuple[str, bytes], int] = {}
    for call in calls:
        behind = [k for k in wholes if k[0] == call.participant and call.prompt_ids.tobytes().startswith(k[1])]
        if behind:
            longest = max(behind, key=lambda k: len(k[1]))
            goes_on[longest] = goes_on.get(longest, 0) + 1
    ends = sum(max(0, count[0] - goes_on.get(key, 0)) for key, count in wholes.items())
    usable = [call for call in calls if call.logprobs is None or np.isfinite(call.logprobs).all()]
    if len(usable) == len(calls):
        assert len(rows_of(calls).rows) == ends


def test_a_retry_that_nobody_used_is_left_out_and_the_late_answer_that_was_used_is_trained() -> None:
    made = Calls()
    history = made.turn(HEAD, 100)
    made.turn(HEAD, 110, retry_of="c0")
    made.turn([*history, *tool(500)], 120)
    built = rows_of(made.made)
    assert outline(built) == [("start", ("c0", "c2"), None, None)]
    assert built.counters["left_out:superseded"] == 1


def test_a_chain_of_retries_trains_the_last() -> None:
    made = Calls()
    made.turn(HEAD, 100)
    made.turn(HEAD, 110, retry_of="c0")
    made.turn(HEAD, 120, retry_of="c1")
    assert outline(rows_of(made.made)) == [("start", ("c2",), None, None)]


def test_a_retry_of_a_call_without_tokens_is_trained() -> None:
    made = Calls()
    made.turn(HEAD, 110, retry_of="lost")
    assert outline(rows_of(made.made)) == [("start", ("c0",), None, None)]
    assert "left_out:superseded" not in rows_of(retry()[1:]).counters


def test_a_recorded_rewrite_gives_the_reason() -> None:
    for said, reason in (("truncation", "truncation"), ("compaction", "compaction"), ("thinking_stripped", "history_rewritten")):
        calls = compaction()
        calls[3] = replace(calls[3], rewritten=said)
        assert rows_of(calls).rows[1].open_reason == reason


def test_a_rewrite_that_left_the_prefix_whole_opens_nothing() -> None:
    calls = append_only()
    assert outline(rows_of([calls[0], replace(calls[1], rewritten="truncation"), calls[2]])) == outline(rows_of(calls))


def test_a_tool_result_cut_short_later_is_a_truncation_at_its_place() -> None:
    made = Calls()
    first = [*made.turn(HEAD, 100), *tool(500, size=9)]
    made.turn(first, 110)
    made.turn([*HEAD, *TURN, *range(100, 104), END, *tool(500, size=2), *TURN, *range(110, 114), END, *tool(510)], 120)
    row = rows_of(made.made).rows[1]
    assert (row.open_reason, row.left_row, row.diverges_at) == ("truncation", 0, H + 7 + 4)


def test_a_summary_in_the_prompt_is_a_compaction_however_long_the_prompt_is() -> None:
    made, words = Calls(), list(range(300, 320))
    made.turn(HEAD, 100)
    made.sample([SYSTEM, 80, END], [*words, END], participant="summariser", role="summary")
    made.turn([*HEAD, USER, *words, END, NEWLINE], 110)
    assert [row.open_reason for row in rows_of(made.made).rows] == ["start", "participant", "compaction"]


def test_a_shorter_prompt_on_the_same_request_is_taken_for_a_compaction_and_another_request_for_a_conversation_of_its_own() -> None:
    calls = append_only(4)
    made = Calls(list(calls))
    made.turn([*HEAD, USER, 300, 301, END, NEWLINE], 150)
    assert (rows_of(made.made).rows[1].open_reason, rows_of(made.made).rows[1].left_row) == ("compaction", 0)
    made = Calls(list(calls))
    made.turn([*HEAD[:2], 88, END, NEWLINE, USER, 300, 301, END, NEWLINE], 150)
    assert (rows_of(made.made).rows[1].open_reason, rows_of(made.made).rows[1].left_row) == ("start", None)


def test_positions_are_those_of_tokens_and_not_of_bytes() -> None:
    assert position(ids([1, 2, 3, 2, 3]), ids([2, 3])) == 1
    assert position(ids([0x0201, 0x0403]), ids([0x03000002])) is None
    assert position(ids([0x0201, 0x0403, 0x03000002]), ids([0x03000002])) == 2


def test_a_dropped_middle_is_a_truncation() -> None:
    made = Calls()
    history = list(HEAD)
    for n in range(3):
        history = [*made.turn(history, 100 + 10 * n), *tool(500 + 10 * n)]
    made.turn([*HEAD, *TURN, *range(120, 124), END, *tool(520)], 130)
    assert rows_of(made.made).rows[1].open_reason == "truncation"


def test_another_form_of_the_same_tokens_between_turns_is_the_template() -> None:
    made = Calls()
    made.turn([*made.turn(HEAD, 100), *tool(500)], 110)
    made.turn([*HEAD, *TURN, *range(100, 104), END, *tool(500)[1:], *TURN, *range(110, 114), END, *tool(510), 50, 51], 120)
    row = rows_of(made.made).rows[1]
    assert (row.open_reason, row.diverges_at) == ("template", H + 7)
    made.made[-1] = replace(
        made.made[-1], prompt_ids=ids([*HEAD, *TURN, *range(100, 104), END, NEWLINE, *tool(500), *TURN, *range(110, 114), END])
    )
    row = rows_of(made.made).rows[1]
    assert (row.open_reason, row.diverges_at) == ("template", H + 8)


def test_an_end_of_turn_that_the_template_does_not_repeat_is_the_template() -> None:
    made = Calls()
    made.sample([*HEAD, *TURN], [100, 101, END])
    made.turn([*HEAD, *TURN, 100, 101, *tool(500)[:-2]], 110)
    row = rows_of(made.made).rows[1]
    assert (row.open_reason, row.diverges_at) == ("template", H + 4)


WORDS = {100: "call(", 101: " x", 102: " y", 103: ")", 198: " x", 104: "  ", 199: " x y", 150: "\n", END: "<end>"}


def words(token_ids: Sequence[int]) -> str:
    return "".join(WORDS.get(i, f"<{i}>") for i in token_ids)


@pytest.mark.parametrize(
    ("sampled", "rendered", "reason"),
    [
        ([100, 101, 102, 103, END], [100, 199, 103, END], "retokenise"),
        ([100, 101, 102, 103, 104, END], [100, 101, 102, 103, END], "parser"),
        ([100, 101, 104, 103, END], [100, 101, 103, END], "parser"),
        ([100, 101, 102, 103, END], [100, 102, 101, 103, END], "parser"),
        ([8, 200, 9, 100, 103, END], [100, 103, END], "history_rewritten"),
        ([100, 101], [100, 198, END], "retokenise"),
    ],
)
def test_decoded_text_tells_a_tokenizer_from_a_parser(sampled: list[int], rendered: list[int], reason: str) -> None:
    made = Calls()
    made.sample([*HEAD, *TURN], sampled)
    made.turn([*HEAD, *TURN, *rendered, *tool(500)], 300)
    assert build_rows("r", made.made, text=words).rows[1].open_reason == reason


def test_a_call_given_twice_is_refused() -> None:
    calls = append_only(1)
    with pytest.raises(TokenError, match="'c0' is given twice"):
        rows_of([*calls, *calls])
