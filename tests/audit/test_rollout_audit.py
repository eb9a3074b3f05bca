"""Audits of many rollouts: findings with roots, one event a check, nothing twice, and no alarm on healthy ones."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from audit.audit_command import audit
from audit.rollout_audit import audit_rollouts, audited, checks_named, findings_of
from audit.run import check_ids
from ledger.errors import SettingsError, TallyError
from ledger.events import CheckRan, FindingRaised, RewardDerived
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from tests.audit.rollout_subjects import POLICY, rollout
from tests.builders import SAMPLED, DeskHistory, small_tokenizer


def test_the_policy_names_every_check_and_no_other() -> None:
    assert {check_id for bound in checks_named((), POLICY) for check_id in check_ids(bound)} == POLICY.severity.keys()
    with pytest.raises(SettingsError, match="no rollout check 'luck'"):
        checks_named(["luck"], POLICY)


def test_every_check_passes_or_skips_on_a_healthy_rollout_and_breaks_on_none() -> None:
    for subject in (rollout(), rollout([], (), running=True, verdicts=(), rewards=()), rollout(tool_format="compact")):
        ((_, results),) = audited([subject], POLICY)
        assert {name: result.reason for name, result in results.items() if result.status in ("fail", "error")} == {}
        assert all(result.reason for result in results.values() if result.status == "skip")


def test_a_failure_that_another_explains_names_it_as_its_root() -> None:
    subject = rollout(verdicts=(), rewards=({"value": 0.0, "verdict_ids": []},))
    checks = checks_named((), POLICY)
    ((_, results),) = audited([subject], POLICY, checks)
    found = {one.check: one for one in findings_of(subject, results, checks, POLICY)}
    assert found.keys() == {"verdict.present", "reward_none_coerced"}
    assert found["reward_none_coerced"].root is found["verdict.present"] and found["verdict.present"].root is None
    assert found["verdict.present"].boundary == "verifier" and found["verdict.present"].level == "error"


def test_a_check_that_breaks_is_an_error_and_the_audit_goes_on() -> None:
    def gone(blob_id: str) -> bytes:
        raise TallyError(f"no blob {blob_id}")

    ((_, results),) = audited([replace(rollout(), bytes_of=gone)], POLICY)
    assert results["args_roundtrip"].status == "error" and "no blob" in results["args_roundtrip"].reason
    assert results["hidden_retry"].status == "pass"


def history(ledger: LedgerHandle, folder: Path) -> tuple[DeskHistory, list[str]]:
    desk = DeskHistory(ledger, tasks=2, model=small_tokenizer(folder, ["query_tickets get_owner send_email update_ticket"]))
    pair = desk.group(0, SAMPLED, size=2)
    ids = [desk.rollout(pair, 0, SAMPLED, "oracle"), desk.rollout(pair, 0, SAMPLED, "wrong_recipient", slot=1)]
    broken = desk.rollout(desk.group(1, "oracle"), 1, "oracle", "oracle", fault="world_error")
    desk.judge_and_reward()
    return desk, [*ids, broken]


def test_an_audit_of_a_run_finds_what_is_wrong_appends_once_and_nothing_on_healthy_rollouts(ledger: LedgerHandle, tmp_path: Path) -> None:
    desk, ids = history(ledger, tmp_path / "tiny")
    checks = checks_named(["verdict.present", "reward_none_coerced", "scored_with_exception", "state_chain", "hidden_retry"], POLICY)
    clean = audit_rollouts(ledger, ids, POLICY, run_id=desk.run_id, checks=checks, appends=False)
    assert clean.created is None and clean.findings == () and clean.broken == () and clean.rollouts == 3
    assert clean.counts["state_chain"]["pass"] == 3 and clean.counts["scored_with_exception"]["pass"] == 3
    ledger.append([ledger.new(RewardDerived(
        reward_id="forged", rollout_id=ids[2], rule="by_hand", rule_id="0" * 64, verdict_ids=[], value=0.0, reason="filled in",
    ))])  # fmt: skip
    first = audit_rollouts(ledger, ids, POLICY, run_id=desk.run_id, checks=checks)
    again = audit_rollouts(ledger, ids, POLICY, run_id=desk.run_id, checks=checks)
    assert {(found.check, found.fault) for found in first.findings} == {
        ("verdict.present", "reward_without_verdict"), ("reward_none_coerced", "reward_coerced"), ("scored_with_exception", "world_crashed")
    }  # fmt: skip
    assert first.inputs_digest == again.inputs_digest != clean.inputs_digest
    ids_of_checks = [check_id for bound in checks for check_id in check_ids(bound)]
    assert first.created == 3 + len(ids_of_checks) and again.created == 0
    ledger.barrier()
    bodies = [event.body for event in ledger.read(kinds=["CheckRan", "FindingRaised"])]
    ran = {body.check_id: body for body in bodies if isinstance(body, CheckRan)}
    assert ran["verdict.present"].status == "fail" and ran["verdict.present"].subject == f"run-{desk.run_id}"
    assert ran["state_chain"].status == "pass" and all(body.evidence_event_ids for body in bodies if isinstance(body, FindingRaised))


def test_the_command_shows_counts_and_findings_and_its_exit_code_says_whether_there_are_errors(
    ledger: LedgerHandle, tmp_path: Path
) -> None:
    desk, ids = history(ledger, tmp_path / "tiny")
    settings = Settings(database_url=ledger.url, project=ledger.project)

    def said(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(audit, ["run", *arguments], obj=settings)
        return result.exit_code, result.output

    before = ledger.barrier()
    code, shown = said(desk.run_id[:13], "--check", "state_chain", "--check", "verdict.present", "--dry-run")
    assert code == 0 and "state_chain" in shown and "nothing found" in shown and ledger.barrier() == before
    ledger.append([ledger.new(RewardDerived(
        reward_id="forged", rollout_id=ids[0], rule="by_hand", rule_id="0" * 64, verdict_ids=[], value=0.0, reason="filled in",
    ))])  # fmt: skip
    code, shown = said(desk.experiment_id, "--check", "verdict.present", "--json", "--round", "0")
    assert code == 1 and f'"subject": "rollout-{ids[0]}"' in shown and '"fault": "reward_without_verdict"' in shown
    nowhere = CliRunner().invoke(audit, ["run", "desk", "--round", "5"], obj=settings)
    assert "has no rollouts in round 5; its rounds are 0" in str(nowhere.exception)
