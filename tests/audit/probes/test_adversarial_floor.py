from tests.audit.verifier_cases import probe, says, sound


def test_i1_a_no_op_agent_that_writes_a_reward_of_one_stays_at_the_floor_and_honest_work_reaches_the_top() -> None:
    results = probe("adversarial_floor", sound)
    assert (results["adversarial_floor"].status, results["oracle_max"].status) == ("pass", "pass")
    assert results["adversarial_floor"].measured["writers"] >= 18


def test_i1_a_verifier_that_believes_a_written_reward_is_found() -> None:
    believes = says(lambda s0, s_end, trace, task: "reward" in s_end or sound(s0, s_end, trace, task).passed is True)
    result = probe("adversarial_floor", believes)["adversarial_floor"]
    assert (result.status, result.fault) == ("fail", "false_accept")
    assert {item["kind"] for item in result.evidence} == {"writes reward", "writes all"}


def test_i1_a_verifier_that_reads_a_reward_file_from_the_calls_is_found() -> None:
    reads = says(lambda s0, s_end, trace, task: any('"reward": 1.0' in step.observation.content for step in trace))
    assert "writes a reward file" in str(probe("adversarial_floor", reads)["adversarial_floor"].evidence)


def test_i4_a_verifier_that_refuses_a_reference_is_found() -> None:
    result = probe("adversarial_floor", says(lambda *_: False))["oracle_max"]
    assert (result.status, result.fault, result.measured["references"]) == ("fail", "false_reject", 2)


def test_i1_a_pinned_verifier_that_cannot_see_honest_work_is_a_false_reject_and_no_floor() -> None:
    results = probe("adversarial_floor", says(lambda s0, s_end, trace, task: "reward" in s_end))
    assert (results["adversarial_floor"].status, results["oracle_max"].status) == ("fail", "fail")
