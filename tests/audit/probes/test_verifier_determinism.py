from itertools import count

from tests.audit.verifier_cases import probe, says, sound


def test_i10_the_same_end_judged_ten_times_gives_the_same_verdict() -> None:
    result = probe("verifier_determinism", sound)["verifier_determinism"]
    assert (result.status, result.measured["runs"]) == ("pass", 10)


def test_i10_a_verifier_that_turns_at_its_eighth_call_on_an_end_is_found() -> None:
    calls = count()
    result = probe("verifier_determinism", says(lambda *_: next(calls) % 8 != 7))["verifier_determinism"]
    assert (result.status, result.fault) == ("fail", "verifier_nondeterministic")
    assert set(result.evidence[0]["passed"]) == {True, False} and len(result.evidence[0]["passed"]) == 10


def test_evidence_that_differs_is_found_though_the_status_does_not() -> None:
    calls = count()

    def judge(s0, s_end, trace, task, *, ask=None):  # type: ignore[no-untyped-def]
        return says(lambda *_: True, evidence={"at": next(calls)})(s0, s_end, trace, task)

    assert probe("verifier_determinism", judge)["verifier_determinism"].status == "fail"


def test_fewer_runs_are_a_parameter() -> None:
    assert probe("verifier_determinism", sound, runs=2)["verifier_determinism"].measured["runs"] == 2
