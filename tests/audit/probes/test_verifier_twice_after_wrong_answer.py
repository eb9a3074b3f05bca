import copy
from dataclasses import replace
from typing import Any

from audit.probes import ProbeSubject, probes
from audit.verifier_trials import artefact_of, run_of
from tests.audit.verifier_cases import DESK, probe, says, sound, trials

NAME = "verifier_twice_after_wrong_answer"


def test_a_sound_verifier_forgets_what_it_judged_before() -> None:
    result = probe(NAME, sound)[NAME]
    assert result.status == "pass" and result.measured["pairs"] > 0


def test_a_verifier_that_holds_a_wrong_answer_against_the_next_one_is_found() -> None:
    last = [True]

    def sulks(s0: Any, s_end: Any, trace: Any, task: Any) -> bool:
        passed = sound(s0, s_end, trace, task).passed is True
        said, last[0] = passed and last[0], passed
        return said

    result = probe(NAME, says(sulks))[NAME]
    assert (result.status, result.fault) == ("fail", "verifier_nondeterministic")
    assert "after_a_wrong_one" in result.evidence[0]


def test_a_verifier_that_changes_what_it_is_shown_is_found() -> None:
    def scribbles(s0: Any, s_end: Any, trace: Any, task: Any) -> bool:
        s_end["seen"] = s_end.get("seen", 0) + 1
        return True

    run = run_of(says(scribbles), DESK.material)
    # The states are shared by all tests, so this judge gets copies.
    tried = [
        replace(trial, artefact=artefact_of(copy.deepcopy(trial.artefact.as_json())))
        for trial in trials(2)
        if trial.sort in ("reference", "no_op")
    ]
    result = probes[NAME](ProbeSubject("own", "program", tried, [run(trial.artefact) for trial in tried]), run)[0]
    assert result.status == "fail" and "the verifier changed what it was shown" in str(result.evidence)
