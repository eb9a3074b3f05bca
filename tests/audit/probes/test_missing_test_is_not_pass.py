from collections.abc import Sequence
from typing import Any

from tests.audit.verifier_cases import probe, says, sound
from training.verifiers import Condition, Verdict

NAME = "missing_test_is_not_pass"


def test_i2_an_error_or_a_failure_of_a_missing_part_is_right() -> None:
    result = probe(NAME, sound)[NAME]
    assert result.status == "pass" and result.measured["ends"] >= 20


def test_i2_a_test_that_is_absent_from_the_output_is_no_pass() -> None:
    assumes = says(lambda s0, s_end, trace, task: not (s_end or {}).get("outbox") or sound(s0, s_end, trace, task).passed is True)
    result = probe(NAME, assumes)[NAME]
    assert (result.status, result.fault) == ("fail", "false_accept")
    assert {"empty object", "without outbox", "nothing in outbox"} <= {item["kind"] for item in result.evidence}


def test_i2_a_verdict_passes_only_with_every_condition_that_the_reference_has() -> None:
    def drops(s0: Any, s_end: Any, trace: Sequence[Any], task: Any, *, ask: Any = None) -> Verdict:
        told = sound(s0, s_end, trace, task)
        return Verdict(tuple(item for item in told.conditions if item.status == "passed") or (Condition("none", "failed"),))

    assert "lacks" in str(probe(NAME, drops)[NAME].evidence)
