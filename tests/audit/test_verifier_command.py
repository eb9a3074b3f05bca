import json
from pathlib import Path

import pytest

from audit.verifier_regression import counterexamples, regression
from ledger.errors import IdempotencyConflict, InvalidEvent, SettingsError, UnknownId
from ledger.events import CheckRan, FindingRaised
from ledger.ledger import LedgerHandle
from ledger.verdict_pairs import registered_verifiers
from tests.audit.verifier_cases import DESK, tally
from tests.builders import DeskHistory
from training.verifiers import verifiers

PLANTED = "desk_without_side_effects"


def test_gaps_become_counterexamples_that_a_person_approves_and_every_later_version_must_pass(
    ledger: LedgerHandle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    DeskHistory(ledger, tasks=1)
    page = tmp_path / "sheet.html"
    assert tally(ledger, "audit", "verifier", PLANTED, "--html", str(page), "--json") == 1
    sheet = json.loads(capsys.readouterr().out)
    assert "verifier_kill_score" in sheet["failing"] and sheet["appended"] > 0
    assert sheet["false_positive_rate"]["low"] < sheet["false_positive_rate"]["value"] < sheet["false_positive_rate"]["high"]
    assert sheet["command"] == f"tally audit verifier {PLANTED} --seed 0"
    assert "stray update_ticket" in page.read_text() and "<script" not in page.read_text()

    known = counterexamples(ledger, PLANTED)
    assert len(known) == len(sheet["gaps"]) > 1 and {item.state for item in known} == {"proposed"}
    stray, refused = next(item for item in known if item.kind == "stray update_ticket"), known[0]
    assert refused is not stray
    assert regression(ledger, PLANTED, verifiers[PLANTED], DESK)[0].status == "skip"
    with pytest.raises(InvalidEvent, match="with a reason"):
        tally(ledger, "audit", "counterexample", "approve", stray.artifact_id)
    assert (
        tally(ledger, "audit", "counterexample", "approve", stray.artifact_id[:16], "--reason", "C5: nobody asked for it", "--as", "Ann")
        == 0
    )
    assert tally(ledger, "audit", "counterexample", "refuse", refused.artifact_id, "--reason", "the label is wrong") == 0
    with pytest.raises(IdempotencyConflict):
        tally(ledger, "audit", "counterexample", "refuse", stray.artifact_id, "--reason", "no", "--as", "Ann")

    again = regression(ledger, PLANTED, verifiers[PLANTED], DESK)
    assert [result.status for result in again] == ["fail"] and again[0].fault == "false_accept"
    assert again[0].evidence_event_ids == (stray.event_id,)
    # A later version of the same name that is repaired passes the set.
    assert [result.status for result in regression(ledger, PLANTED, verifiers["desk_conditions"], DESK)] == ["pass"]

    found = [event.body for event in ledger.read(kinds=["FindingRaised"]) if isinstance(event.body, FindingRaised)]
    verifier_id = verifiers.bind(PLANTED).ref.method_id
    assert {(body.subject, body.boundary) for body in found} == {(f"verifier-{verifier_id}", "verifier")}
    assert all(body.evidence_event_ids for body in found)
    ran = {e.body.check_id: e.body.status for e in ledger.read_stream(f"verifier-{verifier_id}") if isinstance(e.body, CheckRan)}
    assert ran["verifier_kill_score"] == "fail" and ran["verifier_determinism"] == "pass" and ran["verifier_datasheet"] == "fail"


def test_a_dry_run_appends_nothing_and_a_sound_verifier_exits_with_0(ledger: LedgerHandle, capsys: pytest.CaptureFixture[str]) -> None:
    before = ledger.barrier()
    assert tally(ledger, "audit", "verifier", "desk_conditions", "--world", "ticket_desk", "--bundles", "1", "--dry-run") == 0
    shown = capsys.readouterr().out
    for said in ("kill score 1.0000", "false positive rate 0.0000 [0.0000,", "not sealed", "again: tally audit verifier desk_conditions"):
        assert said in shown, said
    assert ledger.barrier() == before and registered_verifiers(ledger) == {}


def test_what_cannot_be_audited_says_why(ledger: LedgerHandle) -> None:
    with pytest.raises(UnknownId, match="give --world"):
        tally(ledger, "audit", "verifier", "desk_conditions")
    with pytest.raises(UnknownId, match="0 verifiers are named 'nothing'"):
        tally(ledger, "audit", "verifier", "nothing")
    with pytest.raises(SettingsError):
        tally(ledger, "audit", "verifier", "desk_conditions", "--world", "no_world", "--bundles", "1")
    with pytest.raises(UnknownId, match="0 counterexamples begin"):
        tally(ledger, "audit", "counterexample", "approve", "abc", "--reason", "x")
