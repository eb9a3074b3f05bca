"""Outcome: how it ended, the verdict that counts, and nothing else."""

import pytest

from ledger.outcome import FAULTS, JUDGED, LIMITS, OUTCOMES, outcome_of, verdict_rank


@pytest.mark.parametrize(
    ("ended_by", "superseded", "status", "passed", "expected"),
    [
        (None, False, "completed", True, "running"),
        ("finished", True, "completed", True, "aborted"),
        ("cancelled", False, "completed", True, "aborted"),
        ("engine_error", False, None, None, "aborted"),
        ("world_error", False, "completed", True, "env_failed"),
        ("harness_error", False, None, None, "harness_failed"),
        ("finished", False, None, None, "unknown"),
        ("finished", False, "completed", None, "unknown"),
        ("finished", False, "error", None, "verifier_failed"),
        ("turn_limit", False, "error", None, "verifier_failed"),
        ("finished", False, "completed", True, "succeeded"),
        ("finished", False, "completed", False, "task_failed"),
        *((limit, False, "completed", True, "succeeded") for limit in LIMITS),
        *((limit, False, "completed", False, "limit_ended") for limit in LIMITS),
    ],
)
def test_outcome_follows_the_end_and_the_verdict(
    ended_by: str | None, superseded: bool, status: str | None, passed: bool | None, expected: str
) -> None:
    assert outcome_of(ended_by, superseded=superseded, verdict_status=status, passed=passed) == expected


def test_no_outcome_is_both_evidence_and_a_fault() -> None:
    assert set(JUDGED) | set(FAULTS) | {"running", "unknown"} == set(OUTCOMES)
    assert not set(JUDGED) & set(FAULTS)


def test_a_person_outranks_a_program_and_a_program_a_judge() -> None:
    review = verdict_rank("ReviewDecided", "review", "human", False)
    program = verdict_rank("VerdictGiven", "bundle", "program", True)
    judge = verdict_rank("VerdictGiven", "bundle", "judge", True)
    assert review is not None
    assert program is not None
    assert judge is not None
    assert review > program > judge
    assert verdict_rank("VerdictGiven", "bundle", "state_diff", True) == program


def test_a_second_opinion_and_an_unclear_review_never_count() -> None:
    assert verdict_rank("VerdictGiven", "second_opinion", "program", True) is None
    assert verdict_rank("ReviewDecided", "review", "human", None) is None


@pytest.mark.parametrize(
    ("attributed", "since", "expected"),
    [
        (None, False, "task_failed"), ("task", False, "task_failed"), ("environment", False, "env_failed"), ("harness", True, "harness_failed"),
        ("verifier", False, "verifier_failed"), ("verifier", True, "task_failed"), ("undecided", False, "unknown"),
        ("undecided", True, "task_failed"),
    ],
)  # fmt: skip
def test_an_attribution_decides_until_a_newer_verdict_says_something_else(attributed: str | None, since: bool, expected: str) -> None:
    found = outcome_of("finished", superseded=False, verdict_status="completed", passed=False, attributed=attributed, judged_since=since)
    assert found == expected
    assert outcome_of("finished", superseded=True, verdict_status="completed", passed=False, attributed=attributed) == "aborted"
