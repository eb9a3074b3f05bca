from itertools import count

from tests.audit.verifier_cases import probe, says, sound


def test_a_sound_program_does_not_mind_the_order_of_keys_and_is_no_judge() -> None:
    results = probe("order_flips", sound)
    assert results["order_flips"].status == "pass"
    assert results["judge_self_agreement"].status == "skip" and "no judge" in results["judge_self_agreement"].reason


def test_a_verifier_that_looks_at_the_first_row_alone_flips() -> None:
    result = probe("order_flips", says(lambda s0, s_end, trace, task: next(iter(s_end["tickets"])) == min(s_end["tickets"])))["order_flips"]
    assert (result.status, result.fault) == ("fail", "verifier_nondeterministic")


def test_j3_a_judge_that_says_no_every_fifth_time_agrees_with_itself_on_six_of_ten_pairs() -> None:
    calls = count()
    # Whatever was asked before, five judgements in a row hold exactly one no: 6 of 10 pairs agree.
    result = probe("order_flips", says(lambda *_: next(calls) % 5 != 0), kind="judge")["judge_self_agreement"]
    assert (result.status, result.fault) == ("fail", "judge_unstable")
    assert result.measured["agreement"] == 0.6 and result.measured["judgements"] == 5


def test_j3_a_judge_that_repeats_itself_agrees_with_itself_wholly() -> None:
    result = probe("order_flips", sound, kind="judge")["judge_self_agreement"]
    assert (result.status, result.measured["agreement"]) == ("pass", 1.0)


def test_less_than_full_agreement_can_be_enough() -> None:
    calls = count()
    result = probe("order_flips", says(lambda *_: next(calls) % 5 != 0), kind="judge", agreement=0.5)["judge_self_agreement"]
    assert result.status == "pass"
