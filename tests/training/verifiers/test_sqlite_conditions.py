"""SQL conditions over the databases before and after: status, evidence, errors that are no numbers, and changes nobody asked for."""

from typing import Any

import pytest

from ledger.bundle import BundleDraft
from ledger.errors import VerifierFailed
from training.verifiers import JudgeTask, Verdict
from training.verifiers.sqlite_conditions import sqlite_conditions

SCHEMA = ["CREATE TABLE jobs (id TEXT NOT NULL PRIMARY KEY, state TEXT, tries INTEGER)"]
BEFORE = {"jobs": {"a": {"id": "a", "state": "new", "tries": 0}, "b": {"id": "b", "state": "new", "tries": 0}}}
AFTER = {"jobs": {"a": {"id": "a", "state": "done", "tries": 1}, "c": {"id": "c", "state": "new", "tries": 0}}}
DONE = {"name": "done", "expect": "rows", "sql": "SELECT id, state FROM after.jobs WHERE id = 'a' AND state = 'done'"}
NONE_LOST = {"name": "none_lost", "expect": "none", "sql": "SELECT id FROM before.jobs EXCEPT SELECT id FROM after.jobs"}


def judged(*conditions: dict[str, Any], before: Any = BEFORE, after: Any = AFTER, **spec: Any) -> Verdict:
    initial = {"database": "jobs", "schema": SCHEMA, "rows": BEFORE}
    spec = {"conditions": list(conditions), **spec}
    draft = BundleDraft(name="hand", world="sqlite", request={"turns": [[]]}, initial_state=initial, spec=spec)
    return sqlite_conditions(before, after, (), JudgeTask(draft, lambda view: view))


def test_a_condition_passes_by_the_rows_that_it_expects_and_shows_them() -> None:
    verdict = judged(DONE, NONE_LOST)
    assert [(condition.name, condition.status) for condition in verdict.conditions] == [("done", "passed"), ("none_lost", "failed")]
    assert verdict.conditions[0].evidence == {"sql": DONE["sql"], "expect": "rows", "rows": [{"id": "a", "state": "done"}], "more": False}
    assert verdict.conditions[1].evidence["rows"] == [{"id": "b"}]
    assert verdict.passed is False
    assert judged(DONE, NONE_LOST, after=BEFORE).conditions[0].status == "failed"


def test_a_condition_outside_the_basis_decides_nothing() -> None:
    assert judged(DONE, {**NONE_LOST, "basis": False}).passed is True


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT absent FROM after.jobs", "no such column"),
        ("SELECT", "incomplete input"),
        ("DELETE FROM after.jobs", "not authorized"),
        ("ATTACH ':memory:' AS more", "not authorized"),
        ("SELECT id, random() FROM after.jobs", "not authorized"),
        ("SELECT date('now') FROM after.jobs", "user-defined function raised"),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n", "takes more than"),
        (7, "not a text"),
    ],
)
def test_a_query_that_fails_is_an_error_and_never_a_number(sql: Any, told: str) -> None:
    verdict = judged(DONE, {"name": "broken", "expect": "none", "sql": sql})
    assert [condition.status for condition in verdict.conditions] == ["passed", "error"]
    assert told in verdict.conditions[1].evidence["error"]
    assert verdict.passed is None


def test_an_unknown_expectation_is_an_error_that_names_the_known_ones() -> None:
    verdict = judged({**DONE, "expect": "maybe"})
    assert verdict.conditions[0].status == "error"
    assert verdict.conditions[0].evidence == {"error": "expect is 'maybe'; allowed: rows, none"}


def test_a_change_at_a_place_that_may_not_change_is_a_side_effect() -> None:
    assert judged(allowed_changes=["/jobs/*"]).passed is True
    verdict = judged(DONE, allowed_changes=["/jobs/a/state", "/jobs/c"])
    assert [(condition.name, condition.status) for condition in verdict.conditions] == [("done", "passed"), ("nothing_else", "failed")]
    assert [effect["path"] for effect in verdict.side_effects] == ["/jobs/a/tries", "/jobs/b"]
    assert judged(allowed_changes=["/jobs/a", "/jobs/b", "/job"]).side_effects[0]["path"] == "/jobs/c"


def test_evidence_is_cut_at_fifty_rows_and_says_so() -> None:
    many = {"jobs": {f"{n:03}": {"id": f"{n:03}", "state": "new", "tries": 0} for n in range(80)}}
    condition = judged({"name": "any", "expect": "none", "sql": "SELECT id FROM after.jobs ORDER BY id"}, after=many).conditions[0]
    assert (len(condition.evidence["rows"]), condition.evidence["more"]) == (50, True)


@pytest.mark.parametrize(
    ("before", "after"),
    [(BEFORE, {"other": {"x": {"id": "x"}}}), (BEFORE, {"jobs": {"a": {"nothing": 1}}}), (None, AFTER), (BEFORE, [])],
)
def test_views_that_make_no_database_break_the_verifier(before: Any, after: Any) -> None:
    with pytest.raises(VerifierFailed, match="no database"):
        judged(DONE, before=before, after=after)


def test_a_bundle_without_conditions_or_schema_is_refused() -> None:
    with pytest.raises(VerifierFailed, match="has no conditions"):
        judged()
    draft = BundleDraft(name="hand", world="x", request={"turns": [[]]}, initial_state={}, spec={"conditions": [DONE]})
    with pytest.raises(VerifierFailed, match="no schema"):
        sqlite_conditions(BEFORE, AFTER, (), JudgeTask(draft, lambda view: view))
