"""The failure triple and foreign names: what is written is read back, and what nobody knows is counted."""

import pytest

from audit.failure_triple import FailureTriple, read_triple, triple_of
from audit.foreign_failures import SYSTEMS, UNKNOWN, meaning_of, meanings
from audit.taxonomy import CAUSAL, FAULTS, boundary_of
from ledger.outcome import JUDGED, OUTCOMES, Outcome


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("fault", [None, "tool_timeout"])
def test_a_triple_is_read_back_as_it_was_written(outcome: Outcome, fault: str | None) -> None:
    passed = {"succeeded": True, "task_failed": False}.get(outcome)
    found = read_triple(triple_of(outcome, fault=fault, reason="why"), passed=passed)
    assert (found.outcome, found.fault, found.reason, found.unknown_kind) == (outcome, fault, "why", None)


def test_a2_only_what_is_no_evidence_has_the_mask() -> None:
    assert {outcome for outcome in OUTCOMES if not triple_of(outcome).mask_sample} == set(JUDGED)
    reset = triple_of("env_failed", fault="reset_failed", reason="no first state")
    assert reset == FailureTriple(True, "env_failed:reset_failed", "no first state")
    assert triple_of("task_failed") == FailureTriple(False)


def test_a_kind_that_nobody_knows_is_named_and_a_masked_reward_stays_masked() -> None:
    found = read_triple(FailureTriple(True, "moon_phase", "full"), passed=False)
    assert (found.outcome, found.unknown_kind) == ("unknown", "moon_phase")
    assert read_triple(FailureTriple(False, "moon_phase"), passed=False).outcome == "task_failed"
    assert read_triple(FailureTriple(True, "verifier_crashed"), passed=None).outcome == "verifier_failed"
    assert read_triple(FailureTriple(True), passed=True).outcome == "unknown"


def test_every_foreign_name_means_a_fault_of_the_taxonomy() -> None:
    for names in SYSTEMS.values():
        for meaning in names.values():
            assert meaning.fault is None or boundary_of(meaning.fault) == meaning.boundary
    assert set(FAULTS) >= CAUSAL and {boundary_of(fault) for fault in CAUSAL} == {"environment", "harness"}


def test_names_keep_their_meaning_and_strange_ones_are_unknown_and_counted() -> None:
    assert meaning_of("harbor", "VerifierTimeoutError").boundary == "verifier"
    assert meaning_of("harbor", "AgentTimeoutError").valid_reward is True
    assert meaning_of("harbor", "ApiOverloadedError").fault == "engine_failed"
    # Harbor's own default takes the reward beside a strange error for valid.
    assert meaning_of("harbor", "StrangeError") is UNKNOWN and UNKNOWN.valid_reward is None
    assert meaning_of("swebench", "tests_timed_out").boundary == "unknown"
    assert meaning_of("tau2", "infrastructure_error").valid_reward is False
    found, strange = meanings("tau2", ["max_steps", "moon", "moon", "user_stop"])
    assert [one.boundary for one in found] == ["task", "unknown", "unknown", "none"] and strange == {"moon": 2}
