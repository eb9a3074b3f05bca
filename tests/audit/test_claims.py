"""Claims: recorded once, never in one series with what is measured, and not replicated until a measurement is attached."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from audit.audit_command import audit
from audit.claims import NOT_REPLICATED, ClaimDraft, add, attach, drafts_in, joined, measured, series, standing
from ledger.errors import SettingsError, UnknownId
from ledger.events import EvaluationMeasured
from ledger.ledger import LedgerHandle
from ledger.settings import Settings

FILE = """
[[claim]]
subject = "Agent Lightning"
metric = "gain"
value = 13.0
unit = "points"
source = "doi:10.1/agl"
axis = "updates"
boundary = "SFT and RL together on one benchmark"
settings = { "stage.1.base" = 28.88, "stage.2.sft" = 37.0, "stage.3.rl" = 41.88, gain_of = "rl" }

[[claim]]
subject = "Agent-World"
metric = "environments"
value = 1978
source = "doi:10.1/aw"
boundary = "563 of them are public"
settings = { reported_total = 1978, released_total = 563 }
"""


def draft(**changes) -> ClaimDraft:
    return ClaimDraft(**{"subject": "s", "metric": "success", "value": 0.7, "source": "doi:1", "boundary": "one desk", **changes})


def measure(ledger: LedgerHandle, value: float = 0.4) -> str:
    ledger.append([ledger.new(EvaluationMeasured(
        evaluation_id="ev1", run_id="r1", metric="success", slice="instances", split="validation", model_version="m1", value=value, n=60,
        expected=60, measured=60, settings={"bundles": 60},
    ))])  # fmt: skip
    return "ev1"


def test_the_same_claim_is_one_event_and_a_correction_takes_its_place(ledger: LedgerHandle) -> None:
    (first,), new = add(ledger, [draft()])
    assert new == 1 and add(ledger, [draft()]) == ([first], 0)
    (second,), _ = add(ledger, [draft(value=0.6, replaces=first)])
    assert [claim.name for claim in standing(ledger)] == [second]
    with pytest.raises(UnknownId, match="'nobody'"):
        add(ledger, [draft(replaces="nobody")])


def test_a_claim_is_not_replicated_until_a_measurement_is_attached_and_they_share_no_series(ledger: LedgerHandle) -> None:
    (claim_id,), _ = add(ledger, [draft()])
    evaluation_id = measure(ledger)
    (before,) = joined(standing(ledger), measured(ledger))
    assert before.status == NOT_REPLICATED and before.measured == ()
    attach(ledger, claim_id, evaluation_id)
    (after,) = joined(standing(ledger), measured(ledger))
    assert after.status == "measured here" and [one.value for one in after.measured] == [0.4] and after.claimed.value == 0.7
    lines = series([after.claimed, *after.measured])
    assert {key[0] for key in lines} == {"claimed", "measured"} and all(len(line) == 1 for line in lines.values())
    with pytest.raises(UnknownId, match="that stands"):
        attach(ledger, claim_id, evaluation_id)
    with pytest.raises(UnknownId, match="no measurement"):
        attach(ledger, after.claimed.name, "nothing")


def test_files_that_do_not_fit_name_the_claim_and_the_field(tmp_path: Path) -> None:
    path = tmp_path / "claims.toml"
    path.write_text(FILE)
    assert [claim.subject for claim in drafts_in(path)] == ["Agent Lightning", "Agent-World"]
    for text, said in (
        (FILE.replace('axis = "updates"', 'axis = "luck"'), "claim 1 of claims.toml: axis is 'luck'"),
        (FILE.replace('boundary = "563 of them are public"\n', ""), "claim 2 of claims.toml: boundary"),
        ("claims = 1", "allowed: one or more"),
        ("[[claim", "cannot read claims"),
    ):
        path.write_text(text)
        with pytest.raises(SettingsError, match=said):
            drafts_in(path)


def called(ledger_url: str, *arguments: str):
    return CliRunner().invoke(audit, ["claims", *arguments], obj=Settings(database_url=ledger_url, project="test"))


def test_the_commands_record_list_and_check_claims(ledger: LedgerHandle, ledger_url: str, tmp_path: Path) -> None:
    path = tmp_path / "claims.toml"
    path.write_text(FILE)
    assert "nothing was appended" in called(ledger_url, "add", str(path), "--dry-run").output and standing(ledger) == []
    assert json.loads(called(ledger_url, "add", str(path), "--json").output)["appended"] == 2
    listed = called(ledger_url, "list")
    assert listed.exit_code == 0 and listed.output.count(NOT_REPLICATED) == 2
    checked = called(ledger_url, "check", "--json")
    shown = json.loads(checked.output)
    failed = {r["check_id"] for one in shown["statements"] for r in one["results"] if r["status"] == "fail"}
    assert checked.exit_code == 1 and failed == {"increments_skip_sft", "reported_total_vs_released"} and shown["appended"] == 2
    assert json.loads(called(ledger_url, "check", "--json").output)["appended"] == 0
    ledger.barrier()
    assert {event.body.severity for event in ledger.read(kinds=["FindingRaised"])} == {"error", "warning"}  # type: ignore[attr-defined]


def test_a_claim_of_the_command_line_is_checked_before_anything_is_written(ledger: LedgerHandle, ledger_url: str) -> None:
    given = ("add", "--subject", "s", "--metric", "pass@1", "--value", "0.7", "--source", "doi:1", "--boundary", "b", "--setting", "k=8")
    assert called(ledger_url, *given).exit_code == 0 and standing(ledger)[0].settings == {"k": 8}
    assert called(ledger_url, "check", "--dry-run").exit_code == 1
    assert called(ledger_url, "add", "--subject", "s").exception is not None and len(standing(ledger)) == 1
