"""Checks in EnvScaler's form."""

from typing import Any

import pytest

from ledger.bundle import BundleDraft
from ledger.errors import VerifierFailed
from training.verifiers import JudgeTask, Verdict, verifiers
from training.verifiers.class_checks import class_checks

DONE = "def check_func(final_state):\n    return final_state['tickets']['T1']['status'] == 'closed'"
SAME_OWNER = "def check_func(final_state):\n    return final_state['tickets']['T1']['owner'] == initial_state['tickets']['T1']['owner']"
CRASH = "def check_func(final_state):\n    return final_state['missing'] == 1"
S0 = {"tickets": {"T1": {"status": "open", "owner": "u1"}}}
END = {"tickets": {"T1": {"status": "closed", "owner": "u1"}}}
STOLEN = {"tickets": {"T1": {"status": "closed", "owner": "u2"}}}


def verdict(*codes: str, end: Any = END) -> Verdict:
    spec = {"checks": [{"name": f"K{n}", "code": code} for n, code in enumerate(codes, 1)]}
    draft = BundleDraft("t", "python_class", {"turns": [[{"role": "user", "content": "?"}]]}, {}, spec=spec)
    return class_checks(S0, end, (), JudgeTask(draft, lambda view: view))


def statuses(found: Verdict) -> list[str]:
    return [condition.status for condition in found.conditions]


def test_each_check_is_a_condition_and_sees_both_states() -> None:
    found = verdict(DONE, SAME_OWNER)
    assert (statuses(found), found.passed) == (["passed", "passed"], True)
    found = verdict(DONE, SAME_OWNER, end=STOLEN)
    assert (statuses(found), found.passed) == (["passed", "failed"], False)


def test_a_check_that_crashes_makes_the_verdict_invalid_and_is_no_failed_condition() -> None:
    found = verdict(DONE, DONE, SAME_OWNER, CRASH, end=STOLEN)
    assert statuses(found) == ["passed", "passed", "failed", "error"]
    assert found.passed is None and found.error is not None and "K4" in found.error
    assert "KeyError" in found.conditions[3].evidence["error"]


@pytest.mark.parametrize(
    "code", ["def check_func(final_state): return 1", "x = 1", "def check_func(", "raise SystemExit", "def check_func(s): return None"]
)
def test_what_is_neither_true_nor_false_is_an_error(code: str) -> None:
    assert statuses(verdict(DONE, code)) == ["passed", "error"]


def test_a_check_changes_nothing_for_the_next_one() -> None:
    spoil = "def check_func(final_state):\n    final_state['tickets'].clear(); initial_state.clear()\n    print('[{}]')\n    return True"
    assert verdict(spoil, DONE, SAME_OWNER).passed is True


@pytest.mark.parametrize("code", ["import os\nos._exit(0)", "import os\nos.kill(os.getpid(), 9)", "x = bytearray(1 << 34)"])
def test_a_check_that_breaks_its_process_is_a_failed_verifier(code: str) -> None:
    with pytest.raises(VerifierFailed, match="broke their process"):
        verdict(DONE, code)


def test_a_task_without_checks_cannot_be_judged() -> None:
    with pytest.raises(VerifierFailed, match="spec.checks"):
        verdict()


def test_the_verifier_is_one_of_its_family() -> None:
    assert "class_checks" in list(verifiers.names())
