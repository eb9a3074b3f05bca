"""Rollouts as audits read them: everything that was said about each, whatever was planted elsewhere, and no more."""

from pathlib import Path

import pytest

from audit.rollout_reading import read_subjects
from audit.rollout_subject import RolloutSubject
from ledger.canonical import digest
from ledger.errors import UnknownId
from ledger.events import FaultInjected
from ledger.ledger import LedgerHandle
from tests.builders import SAMPLED, DeskHistory, small_tokenizer


def seen(ledger: LedgerHandle, *ids: str) -> list[RolloutSubject]:
    return list(read_subjects(ledger, ids))


def test_a_rollout_comes_with_its_calls_rows_verdicts_and_rewards_in_the_order_asked(ledger: LedgerHandle, tmp_path: Path) -> None:
    folder = small_tokenizer(tmp_path / "tiny", ["query_tickets get_owner send_email update_ticket"])
    desk = DeskHistory(ledger, tasks=2, model=folder)
    good = desk.rollout(desk.group(0, SAMPLED), 0, SAMPLED, "oracle")
    idle = desk.rollout(desk.group(1, "oracle"), 1, "oracle", [])
    desk.judge_and_reward()
    first, second = seen(ledger, idle, good)
    assert (first.rollout_id, second.rollout_id) == (idle, good)
    assert second.ended is not None and second.ended[1].ended_by == "finished"
    assert len(second.calls) == second.ended[1].model_calls and all(call.tokens is not None for call in second.calls)
    assert sum(int(row.mask_T.sum()) for row in second.built.rows) == sum(len(call.tokens.sampled) for call in second.calls)  # type: ignore[arg-type, union-attr]
    assert len(second.judged) == len(desk.judgings) and second.rewarded[0][1].value == 1.0 and first.rewarded[0][1].value == 0.0
    assert second.bundle is not None and second.bundle.bundle_id == desk.bundles[0].bundle_id
    name, call = second.tools[0]
    assert second.text(call.name) == "query_tickets" and second.json(call.result) is not None and name == second.events(type(call))[0][0]
    assert second.request(second.calls[0])["messages"] and second.answer(second.calls[0])["choices"]


def test_another_attempt_at_the_slot_is_named(ledger: LedgerHandle) -> None:
    desk = DeskHistory(ledger, tasks=1)
    group = desk.group(0, "oracle")
    first = desk.rollout(group, 0, "oracle", "oracle", fault="world_error")
    second = desk.rollout(group, 0, "oracle", "oracle", attempt=2)
    assert [subject.others for subject in seen(ledger, first, second)] == [(second,), (first,)]


def test_labels_of_planted_faults_change_nothing(ledger: LedgerHandle) -> None:
    desk = DeskHistory(ledger, tasks=1)
    rollout = desk.rollout(desk.group(0, "oracle"), 0, "oracle", "oracle")
    (before,) = seen(ledger, rollout)
    ledger.append([ledger.new(FaultInjected(rollout_id=rollout, index=0, fault="timeout", place="call:0"))])
    (after,) = seen(ledger, rollout)
    assert digest([repr(event) for event in before.own]) == digest([repr(event) for event in after.own])


def test_a_rollout_that_is_not_there_is_named(ledger: LedgerHandle) -> None:
    with pytest.raises(UnknownId, match="no rollout 'nobody'"):
        seen(ledger, "nobody")
