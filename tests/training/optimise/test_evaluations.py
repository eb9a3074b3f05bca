"""What an evaluation attempts and who judges it."""

from pathlib import Path
from typing import Any

import pytest

from ledger.attempts import dispatched
from ledger.bundle import Bundle
from ledger.errors import SettingsError
from ledger.events import BundleRejected, VerdictGiven
from ledger.ledger import LedgerHandle
from tests.training.optimise.lab_files import config, opened
from training.lab import Lab
from training.optimise.evaluations import FIXED_RULES, evaluate_fixed_rules, evaluation_tasks
from training.optimise.opened import Training
from training.run_config import RunConfig

HELD_OUT = {
    "world": "ticket_desk", "count": 4, "seed": 4, "options": {"families": True, "level": 0, "split": "validation", "slice": "instances"},
}  # fmt: skip


def evaluated(**changes: Any) -> RunConfig:
    """The small experiment with three of four validation tasks to be attempted by one rule."""
    whole = config().model_dump()
    whole["tasks"] = [*whole["tasks"], HELD_OUT]
    whole["train"]["evaluation"] = {"tasks": 3, "scripts": ["mails_everyone"]}
    return RunConfig.model_validate({**whole, **changes})


def reject(ledger: LedgerHandle, bundles: list[Bundle]) -> None:
    """A later decision of the gates against bundles that were admitted."""
    results = ledger.pending_json({})
    ledger.append([
        ledger.new(BundleRejected(
            bundle_id=bundle.bundle_id, statuses={}, blocking=["floor"], policy="by hand", policy_id="1" * 64, gate_id="4" * 64,
            results=results.ref,
        ), results)
        for bundle in bundles
    ])  # fmt: skip


def roles(ledger: LedgerHandle) -> set[str]:
    ledger.barrier()
    return {event.body.role for event in ledger.read(kinds=["VerdictGiven"]) if isinstance(event.body, VerdictGiven)}


def test_rejected_tasks_are_left_out_and_counted_and_nothing_replaces_them(ledger: LedgerHandle, tmp_path: Path) -> None:
    with opened(ledger, tmp_path, evaluated()) as lab:
        tasks = evaluation_tasks(Training(lab))
        reject(ledger, tasks[:1])
    with Lab(evaluated(), ledger, lab.settings) as lab:
        assert evaluation_tasks(Training(lab)) == tasks[1:]
        report = evaluate_fixed_rules(lab)
        assert report.counts == {"expected": 2, "already": 0, "new": 2, "rejected bundles left out": 1}
        assert evaluate_fixed_rules(lab).counts == {"expected": 2, "already": 2, "new": 0, "rejected bundles left out": 1}
        assert {group.bundle_id for group in dispatched(ledger, lab.run().run_id, FIXED_RULES)} == {task.bundle_id for task in tasks[1:]}
        reject(ledger, tasks)
    with Lab(evaluated(), ledger, lab.settings) as lab, pytest.raises(SettingsError, match="rejected all 3 tasks of slice 'instances'"):
        evaluate_fixed_rules(lab)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [({}, {"bundle"}), ({"second_opinions": False}, {"bundle"}), ({"second_opinions": True}, {"bundle", "second_opinion"})],
)
def test_second_opinions_judge_an_evaluation_only_where_the_experiment_says_so(
    ledger: LedgerHandle, tmp_path: Path, said: dict[str, bool], wanted: set[str]
) -> None:
    with opened(ledger, tmp_path, evaluated(**said)) as lab:
        assert evaluate_fixed_rules(lab).counts == {"expected": 3, "already": 0, "new": 3}
    assert roles(ledger) == wanted
