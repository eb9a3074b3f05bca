from tests.audit.verifier_cases import probe, says, sound
from training.verifiers import Verdict, verifiers

NAME = "two_verifier_disagreement"


def test_i7_another_scorer_that_passes_more_is_a_disagreement_with_its_rate() -> None:
    result = probe(NAME, sound, others={"desk_any_mail": verifiers["desk_any_mail"], "end_state": verifiers["end_state"]})[NAME]
    assert result.status == "fail"
    assert result.measured["rates"]["end_state"] == 0.0 < result.measured["rates"]["desk_any_mail"]
    assert result.evidence[0]["other"] == "desk_any_mail" and result.evidence[0]["other_says"] is True


def test_i7_two_scorers_that_agree_pass_and_some_disagreement_can_be_allowed() -> None:
    assert probe(NAME, sound, others={"end_state": verifiers["end_state"]})[NAME].status == "pass"
    assert probe(NAME, sound, others={"desk_any_mail": verifiers["desk_any_mail"]}, most=1.0)[NAME].status == "pass"
    assert probe(NAME, sound)[NAME].status == "skip"


def test_i7_a_gold_answer_that_cannot_be_parsed_is_found() -> None:
    assert probe(NAME, sound)["gold_unparseable"].status == "pass"

    def cannot(s0, s_end, trace, task, *, ask=None):  # type: ignore[no-untyped-def]
        return Verdict((), error="cannot parse \\frac{1}{2}")

    result = probe(NAME, cannot)["gold_unparseable"]
    assert (result.status, result.fault) == ("fail", "verifier_crashed")


def test_an_undecided_verdict_is_no_disagreement() -> None:
    def cannot(s0, s_end, trace, task, *, ask=None):  # type: ignore[no-untyped-def]
        return Verdict((), error="broke")

    assert probe(NAME, says(lambda *_: True), others={"broken": cannot})[NAME].status == "pass"
