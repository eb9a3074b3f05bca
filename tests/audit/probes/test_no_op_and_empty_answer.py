from tests.audit.verifier_cases import probe, says, sound

NAME = "no_op_and_empty_answer"


def test_i11_no_call_and_an_empty_answer_are_rejected() -> None:
    results = probe(NAME, sound)
    assert {name: result.status for name, result in results.items()} == {"no_op_rejected": "pass", "empty_answer_rejected": "pass"}


def test_i11_a_verifier_that_gives_one_to_the_empty_string_is_found() -> None:
    empty = says(lambda s0, s_end, trace, task: bool(trace) and trace[-1].observation.content == "")
    results = probe(NAME, empty)
    assert (results["empty_answer_rejected"].status, results["no_op_rejected"].status) == ("fail", "pass")
    assert results["empty_answer_rejected"].fault == "false_accept"


def test_a_verifier_that_passes_an_untouched_state_is_found() -> None:
    assert probe(NAME, says(lambda s0, s_end, trace, task: s0 == s_end))["no_op_rejected"].status == "fail"


def test_without_an_undone_task_nothing_is_known() -> None:
    assert {result.status for result in probe(NAME, sound, sorts=("reference",)).values()} == {"skip"}
