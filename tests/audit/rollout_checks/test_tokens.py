"""Checks of tokens, masks and log-probabilities, each with its golden case and its legal neighbour."""

from dataclasses import replace

import numpy as np

from ledger.events import HistoryRewritten, VersionSpan
from tests.audit.rollout_subjects import HEALTHY, Call, checked, failed, rollout, status

END, BREAK = 6, 7
FIRST = Call([9, 1, 2, 3], [4, 5, END], [-0.5, -0.25, -0.01])
RAW = {"logprobs_mode": "raw_logprobs", "sampling": {"temperature": 0.7}}


def second(*prompt: int) -> Call:
    return Call(prompt, [8, END], [-0.5, -0.01])


def test_c1_a_dropped_separator_fails_prefix_extension_with_its_index() -> None:
    broken = rollout([FIRST, second(9, 1, 2, 3, 4, 5, END, BREAK, 2), Call([9, 1, 2, 3, 4, 5, END, 2, 8, END, 3], [8], [-0.1])])
    result = failed(broken, "prefix_extension", "template_drift")
    assert result.evidence[0]["first_divergent_index"] == 7 and result.evidence[0]["row_ids"][0] == BREAK
    told = rollout(
        [FIRST, second(9, 1, 2, 3, 4, 5, END, BREAK, 2), Call([9, 1, 2, 3, 4, 5, END, 2, 8, END, 3], [8], [-0.1])],
        decode=lambda version, ids: " ".join(map(str, ids)),
    )
    assert failed(told, "prefix_extension", "template_drift").evidence[0]["row_text"].startswith("7 2")


def test_formats_07_a_cut_character_that_the_template_replaced_by_an_end_of_turn_fails_prefix_extension() -> None:
    cut = Call([9, 1, 2, 3], [4, 5, 77], [-0.5, -0.25, -0.01], finish="length")
    result = failed(rollout([cut, second(9, 1, 2, 3, 4, 5, END, BREAK)]), "prefix_extension", "template_drift")
    assert result.evidence[0]["first_divergent_index"] == 6


def test_c2_a_row_that_was_opened_for_a_reason_passes_prefix_extension() -> None:
    thinking = Call([9, 1, 2, 3], [30, 31, 32, 4, 5, END], [-0.5] * 6)
    assert checked(rollout([thinking, second(9, 1, 2, 3, 4, 5, END, BREAK)]), "prefix_extension").status == "pass"
    said = HistoryRewritten(rollout_id="r", index=0, dropped=1, kept=1, summary=None, reason="template", before_call=1)
    assert status(rollout([FIRST, second(9, 1, 2, 3, 4, END, BREAK)], before=[said]), "prefix_extension") == "pass"
    assert status(rollout(HEALTHY), "prefix_extension") == "pass"
    assert status(rollout([Call(content="no tokens")]), "prefix_extension") == "skip"


def test_an_empty_answer_that_the_template_renders_with_a_blank_is_counted_and_no_drift() -> None:
    empty = Call([9, 1, 2, 3], [END], [-0.1])
    result = checked(rollout([empty, second(9, 1, 2, 3, 55, END, BREAK)]), "prefix_extension")
    assert result.status == "pass" and result.measured["empty_answers"] == 1


def test_d1_an_inverted_mask_fails_and_d2_a_mask_of_everything_fails() -> None:
    good = rollout()
    (row,) = good.built.rows
    for mask in (~row.mask_T, np.ones_like(row.mask_T)):
        bad = replace(good, built=replace(good.built, rows=(replace(row, mask_T=mask),)))
        assert failed(bad, "mask_eq_sampled", "inverted_mask").measured["sampled"] == 5
    assert status(good, "mask_eq_sampled") == "pass"
    other = rollout(member={"trainable": False})
    assert status(other, "mask_eq_sampled") == "pass" and not other.built.rows[0].mask_T.any()


def test_c9_fewer_logprobs_than_ids_fail() -> None:
    short = Call([9, 1, 2, 3], [4, 5, 6], [-0.5, -0.25])
    assert failed(rollout([short]), "len_ids_eq_len_logprobs", "logprobs_filled").evidence[0] == {
        "call": 0, "ids": 3, "logprobs": 2, "as": "stated"
    }  # fmt: skip
    assert status(rollout(), "len_ids_eq_len_logprobs") == "pass"
    assert status(rollout([Call([9, 1], [4], None)]), "len_ids_eq_len_logprobs") == "skip"


def test_c12_a_mask_longer_than_its_ids_fails() -> None:
    good = rollout()
    (row,) = good.built.rows
    longer = replace(row, mask_T=np.concatenate([row.mask_T, [True, True]]))
    bad = replace(good, built=replace(good.built, rows=(longer,)))
    assert failed(bad, "len_mask_eq_len_ids", "tokens_changed").evidence[0]["mask"] == len(row.ids_T) + 2
    assert status(good, "len_mask_eq_len_ids") == "pass"
    assert status(bad, "mask_eq_sampled") == "pass"


def test_c9_a_list_that_was_filled_with_zeros_fails_and_single_sure_tokens_do_not() -> None:
    clean = [-0.3, -0.0004, 0.0, -0.00002, -0.7, -0.0001, 0.0]
    filled = [-0.3, *[0.0] * 12]
    many = [Call([9, n], [4] * 7, clean) for n in range(10)]
    failed(rollout([*many, Call([9, 50], [4] * 13, filled)], tools=()), "logprob_exact_zero_run", "logprobs_filled")
    failed(rollout([Call([9, n], [4] * 5, [0.0] * 5) for n in range(3)], tools=()), "logprob_exact_zero_run", "logprobs_filled")
    assert status(rollout(many, tools=()), "logprob_exact_zero_run") == "pass"
    short = Call([9, 50], [4] * 4, [0.0] * 4)
    assert status(rollout([short], tools=()), "logprob_exact_zero_run") == "pass"


def test_zeros_at_temperature_0_and_within_sure_text_are_legal() -> None:
    greedy = {"sampling": {"temperature": 0.0}}
    assert status(rollout([Call([9], [4] * 9, [0.0] * 9, called=greedy)], tools=()), "logprob_exact_zero_run") == "skip"
    copied = [-0.3, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -0.2, -0.1]
    assert status(rollout([Call([9], [4] * 9, copied)], tools=()), "logprob_exact_zero_run") == "pass"


def test_c11_logprobs_that_are_no_numbers_fail() -> None:
    bad = rollout([Call([9, 1], [4, 5], [float("nan"), -0.1]), Call([9, 2], [4], [0.5])], tools=())
    assert failed(bad, "logprob_nan", "logprobs_filled").measured["faults"] == 2
    good = rollout()
    (row,) = good.built.rows
    lost = replace(good, built=replace(good.built, rows=(replace(row, logprob_T=np.full_like(row.logprob_T, np.nan)),)))
    failed(lost, "logprob_nan", "logprobs_filled")
    assert status(good, "logprob_nan") == "pass"
    assert status(rollout([Call([9, 1], [4], None)]), "logprob_nan") == "skip"


def test_c6_two_begin_of_sequence_tokens_fail_and_two_line_breaks_do_not() -> None:
    failed(rollout([Call([1, 1, 2, 3], [4], [-0.1])]), "double_bos", "template_drift")
    assert status(rollout([Call([1, 1, 2, 1], [4], [-0.1])]), "double_bos") == "pass"
    breaks = rollout([Call([1, 1, 2, 3], [4], [-0.1])], decode=lambda version, ids: "\n")
    bos = rollout([Call([1, 1, 2, 1], [4], [-0.1])], decode=lambda version, ids: "<s>")
    assert status(breaks, "double_bos") == "pass" and status(bos, "double_bos") == "fail"
    assert status(rollout([Call()]), "double_bos") == "skip"


def test_c4_fewer_captured_ids_than_usage_says_fail() -> None:
    lost = Call([9, 1, 2], [4, 5], [-0.1, -0.2], called={"usage": {"prompt_tokens": 3, "completion_tokens": 9}})
    assert failed(rollout([lost]), "capture.count_eq_usage", "capture_gap").evidence[0]["completion_tokens"] == 9
    assert status(rollout(), "capture.count_eq_usage") == "pass"
    assert status(rollout([Call([9], [4], called={"usage": {}})]), "capture.count_eq_usage") == "skip"
    changed = rollout()
    calls = (replace(changed.calls[0], token_fault="prompt of another length"), *changed.calls[1:])
    failed(replace(changed, calls=calls), "capture.count_eq_usage", "capture_gap")


def test_e2_raw_logprobs_at_another_temperature_fail() -> None:
    failed(rollout([Call([9], [4], [-0.1], called=RAW)]), "raw_mode_with_temperature", "logprobs_mismatched")
    plain = {"logprobs_mode": "raw_logprobs", "sampling": {"temperature": 1.0}}
    assert status(rollout([Call([9], [4], [-0.1], called=plain)]), "raw_mode_with_temperature") == "pass"
    assert (
        status(rollout([Call([9], [4], [-0.1], called={**RAW, "logprobs_mode": "processed_logprobs"})]), "raw_mode_with_temperature")
        == "pass"
    )
    assert status(rollout([Call([9], [4], [-0.1], called=RAW)], member={"trainable": False}), "raw_mode_with_temperature") == "skip"


def spans(*parts: tuple[str, int, int]) -> dict[str, object]:
    return {"version_spans": [VersionSpan(model_version=name, start=start, end=end) for name, start, end in parts]}


def test_f1_spans_with_a_gap_fail_and_two_versions_in_one_sample_do_not() -> None:
    def made(*parts: tuple[str, int, int]) -> Call:
        return Call([9], [4, 5, 6], [-0.1] * 3, called=spans(*parts))

    for bad in (made(("v7", 0, 1), ("v8", 2, 3)), made(("v7", 0, 2)), made(("v7", 1, 3))):
        failed(rollout([bad]), "version_spans_cover_tokens", "version_unstated")
    assert status(rollout([made(("v7", 0, 2), ("v8", 2, 3))]), "version_spans_cover_tokens") == "pass"
    assert status(rollout([Call()]), "version_spans_cover_tokens") == "skip"


def test_f2_a_sample_without_a_version_fails() -> None:
    failed(rollout([Call([9], [4], [-0.1], called=spans())]), "version_present", "version_unstated")
    assert status(rollout(), "version_present") == "pass"
    assert status(rollout([Call([9], [4], [-0.1], called=spans())]), "version_spans_cover_tokens") == "pass"


def cached(version: str, tokens: int, count: int = 1) -> dict[str, object]:
    return {**spans((version, 0, count)), "usage": {"cached_tokens": tokens}}


def test_e3_a_cache_of_another_version_fails() -> None:
    first = Call([9, 1, 2], [4], [-0.1], called=cached("tiny-1", 0))
    after = Call([9, 1, 2, 4, 5], [6], [-0.1], called=cached("tiny-2", 4))
    then = Call([9, 1, 2, 4, 5, 6, 7], [6], [-0.1], called=cached("tiny-2", 6))
    assert failed(rollout([first, after, then]), "prefix_cache_crosses_version", "stale_cache").measured["faults"] == 1
    prompt = Call([9, 1, 2, 4, 5], [6], [-0.1], called=cached("tiny-2", 3))
    assert status(rollout([first, prompt]), "prefix_cache_crosses_version") == "pass"
    salted = Call([9, 1, 2], [4], [-0.1], called=cached("tiny-2", 2), request={"cache_salt": "tiny-1"})
    failed(rollout([salted]), "prefix_cache_crosses_version", "stale_cache")
    right = replace(after, request={"cache_salt": "tiny-2"})
    assert status(rollout([first, right]), "prefix_cache_crosses_version") == "pass"
    assert status(rollout(), "prefix_cache_crosses_version") == "skip"
