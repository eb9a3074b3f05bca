import pytest

from audit.results import CheckResult, answers, judged, result_of, shown
from audit.run import Broken, check_ids, guarded, run_checks
from ledger.canonical import canonical_bytes
from ledger.methods import Bound, MethodRef


def bound(check: object) -> Bound[object]:
    return Bound(check, MethodRef("f", "x", {}, "0" * 64), "")  # type: ignore[type-var]


@answers("a.late", needs=("a.first",))
def late(subject: object, policy: object) -> list[CheckResult]:
    return [CheckResult("a.late", "pass")]


def first(status: str) -> object:
    @answers("a.first")
    def check(subject: object, policy: object) -> list[CheckResult]:
        return [CheckResult("a.first", status, "because", remedy="repair it")]  # type: ignore[arg-type]

    return check


@answers("a.crash", "a.crash_too")
def crash(subject: object, policy: object) -> list[CheckResult]:
    raise ZeroDivisionError(f"of {object()}")


@answers("a.one", "a.two")
def forgets(subject: object, policy: object) -> list[CheckResult]:
    return [CheckResult("a.one", "pass")]


def test_a_check_that_crashes_is_an_error_result_of_each_of_its_ids() -> None:
    results = run_checks([bound(crash)], None, {})
    assert [(name, result.status) for name, result in results.items()] == [("a.crash", "error"), ("a.crash_too", "error")]
    # Without the address, so that the same crash reads the same twice.
    assert results["a.crash"].reason == "the check broke: ZeroDivisionError: of <object object>"
    assert "in crash" in results["a.crash"].evidence["place"]


def test_a_check_runs_after_what_it_needs_whatever_the_order() -> None:
    assert run_checks([bound(late), bound(first("pass"))], None, {})["a.late"].status == "pass"


@pytest.mark.parametrize("status", ["fail", "skip", "error"])
def test_a_check_is_skipped_when_what_it_needs_did_not_pass(status: str) -> None:
    result = run_checks([bound(late), bound(first(status))], None, {})["a.late"]
    assert (result.status, result.depends_on, result.remedy) == ("skip", "a.first", "repair it")
    assert result.reason == f"depends on a.first, which is {status}: because"


def test_a_check_without_what_it_needs_in_the_policy_runs() -> None:
    assert run_checks([bound(late)], None, {})["a.late"].status == "pass"


def test_an_id_without_a_result_is_an_error() -> None:
    results = run_checks([bound(forgets)], None, {})
    assert check_ids(bound(forgets)) == ("a.one", "a.two")
    assert (results["a.one"].status, results["a.two"].status) == ("pass", "error")


def test_what_is_raised_is_kept_and_what_is_returned_is_returned() -> None:
    assert guarded(lambda: 3) == 3
    broken = guarded(lambda: {}["x"])
    assert isinstance(broken, Broken) and broken.error == "KeyError: 'x'"


def test_a_result_survives_the_ledger() -> None:
    result = judged("a.b", [{"path": "/x", "seen": float("nan")}], why="no", remedy="do", measured={"n": 2**60})
    assert (result.status, result.reason) == ("fail", "no: path /x, seen nan")
    made = result.as_json()
    canonical_bytes(made)
    assert result_of(made).as_json() == made and made["measured"] == {"n": str(2**60), "faults": 1}


def test_evidence_is_cut_and_says_so() -> None:
    assert shown("x" * 400) == "x" * 300 + "… (400 characters)"
    assert shown(list(range(14))) == [*range(12), "… 2 more"]
    assert shown("a\x00\ud800") == "a\\u0000\\ud800"
