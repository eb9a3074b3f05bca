"""The end-state verifier on a world of plain JSON: parts, evidence, side effects and refusals."""

from typing import Any

import pytest

from ledger.bundle import BundleDraft
from ledger.canonical import digest
from ledger.errors import VerifierFailed
from training.verifiers import JudgeTask, Verdict
from training.verifiers.end_state import end_state

S0 = {"files": {"a": "1", "b": "2"}, "cwd": "/", "log": []}
WANTED = {"files": {"a": "9", "b": "2"}, "cwd": "/"}


def without_log(view: Any) -> Any:
    return {key: value for key, value in view.items() if key != "log"}


def judged(s_end: Any, **reference: Any) -> Verdict:
    draft = BundleDraft(name="hand", world="plain", request={"turns": [[]]}, initial_state=S0, reference=reference or {"end_state": WANTED})
    return end_state(S0, s_end, (), JudgeTask(draft, without_log))


def test_the_wanted_state_passes_part_by_part_whatever_is_not_material() -> None:
    verdict = judged({**WANTED, "log": ["anything"]})
    assert [(condition.name, condition.status) for condition in verdict.conditions] == [("cwd", "passed"), ("files", "passed")]
    assert verdict.passed is True


def test_a_state_left_as_it_was_fails_the_part_that_should_have_moved_without_side_effects() -> None:
    verdict = judged(S0)
    assert [condition.status for condition in verdict.conditions] == ["passed", "failed"]
    assert verdict.conditions[1].evidence == {"differences": [{"path": "/files/a", "expected": "9", "seen": "1"}], "count": 1}
    assert verdict.side_effects == ()


def test_a_change_that_the_reference_does_not_make_is_a_side_effect() -> None:
    verdict = judged({**WANTED, "files": {"a": "8", "b": "3", "c": "new"}})
    assert [effect["path"] for effect in verdict.side_effects] == ["/files/b", "/files/c"]
    assert verdict.conditions[1].evidence["count"] == 3


def test_a_part_that_is_missing_or_surplus_fails_by_its_own_name() -> None:
    verdict = judged({"files": WANTED["files"], "user": 1})
    assert {condition.name: condition.status for condition in verdict.conditions} == {"cwd": "failed", "files": "passed", "user": "failed"}


def test_long_evidence_is_cut_and_counted() -> None:
    verdict = judged({"files": {str(number): number for number in range(80)}, "cwd": "/"})
    assert len(verdict.conditions[1].evidence["differences"]) == 50
    assert verdict.conditions[1].evidence["count"] == 82


def test_an_empty_material_state_is_one_condition_that_is_decided() -> None:
    draft = BundleDraft(name="hand", world="plain", request={"turns": [[]]}, initial_state={}, reference={"end_state": {}})
    verdict = end_state({}, {}, (), JudgeTask(draft, without_log))
    assert [(condition.name, condition.status) for condition in verdict.conditions] == [("state", "passed")]


def test_a_reference_digest_alone_decides_one_condition() -> None:
    assert judged(WANTED, end_state_digest=digest(WANTED)).passed is True
    assert judged(S0, end_state_digest=digest(WANTED)).passed is False


def test_a_bundle_without_a_reference_end_state_is_refused() -> None:
    with pytest.raises(VerifierFailed, match="hand"):
        judged(S0, turns=[[]])
