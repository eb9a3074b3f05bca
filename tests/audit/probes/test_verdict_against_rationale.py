import pytest

from tests.audit.verifier_cases import probe, says, sound

NAME = "verdict_against_rationale"


@pytest.mark.parametrize(
    "evidence",
    [
        {"failed": [{"row": 1}]},
        {"passed": False},
        {"rationale": "All mails went out. Verdict: fail."},
        "The mails went out. Result is incorrect",
    ],
)
def test_a_pass_whose_evidence_says_otherwise_is_found(evidence: object) -> None:
    result = probe(NAME, says(lambda *_: True, evidence=evidence))[NAME]
    assert (result.status, result.fault) == ("fail", "judge_unstable")


def test_the_last_ruling_of_a_rationale_counts() -> None:
    told = "At first the verdict: fail seemed right; but C1 holds, so the final verdict is passed."
    assert probe(NAME, says(lambda *_: True, evidence={"rationale": told}))[NAME].status == "pass"
    assert probe(NAME, says(lambda *_: False, evidence={"rationale": told}))[NAME].status == "fail"


def test_a_text_without_a_ruling_says_nothing() -> None:
    assert probe(NAME, says(lambda *_: True, evidence="The owner of T1 was mailed once."))[NAME].status == "skip"


def test_the_desk_agrees_with_its_own_evidence() -> None:
    result = probe(NAME, sound)[NAME]
    assert result.status == "pass" and result.measured["conditions"] > 100
