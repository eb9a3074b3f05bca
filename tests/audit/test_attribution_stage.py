"""Attributing a run: what is appended decides outcomes, is appended once, is replaced, and does not depend on labels."""

import json
from typing import Any

import pytest

from audit.attribution_stage import attribute_run, attributions, ended_rollouts, root_seed
from audit.audit_command import audit
from audit.replaying import Replayer
from ledger import queries
from ledger.canonical import digest
from ledger.errors import UnknownId
from ledger.events import FaultInjected, FindingRaised
from ledger.ledger import LedgerHandle
from ledger.outcome import UNDECIDED
from ledger.queries import Filter
from ledger.settings import Settings
from tests.builders import DeskHistory
from training.worlds.ticket_desk.scripts import SCRIPTS


def history(ledger: LedgerHandle) -> DeskHistory:
    """One rollout that passed, one that failed by itself, one whose call the world refused, one that the world broke."""
    desk = DeskHistory(ledger, tasks=1)
    desk.rollout(desk.group(0, "oracle"), 0, "oracle", "oracle")
    desk.rollout(desk.group(0, "wrong"), 0, "wrong", "wrong_recipient")
    desk.rollout(desk.group(0, "idle"), 0, "idle", [SCRIPTS["oracle"](desk.bundles[0].draft)[-1]])
    desk.rollout(desk.group(0, "broken"), 0, "broken", "oracle", fault="world_error")
    desk.judge_and_reward()
    return desk


def replayer(ledger: LedgerHandle, desk: DeskHistory, *, world: bool = True) -> Replayer:
    seed = root_seed(ledger, desk.run_id)
    assert seed == 7
    return Replayer(ledger, root_seeds={desk.run_id: seed}, worlds={desk.world.version: desk.world} if world else None)


def outcome(ledger: LedgerHandle, policy: str) -> str:
    queries.fresh(ledger)
    return queries.rollouts(ledger, Filter(policy=policy)).lines[0].outcome


def test_failures_of_a_run_are_attributed_once_and_their_outcomes_follow(ledger: LedgerHandle) -> None:
    desk = history(ledger)
    with replayer(ledger, desk) as at_work:
        dry = attribute_run(ledger, desk.run_id, at_work, dry_run=True)
        done = attribute_run(ledger, desk.run_id, at_work)
        again = attribute_run(ledger, desk.run_id, at_work)
        assert (dry.new, done.new, again.new) == (3, 3, 0) and dry.attributions == done.attributions == again.attributions
        assert [(one.boundary, one.policy_evidence) for one in done.attributions] == [
            ("task", True),
            ("task", True),
            ("environment", False),
        ]
        whole = attribute_run(ledger, desk.run_id, at_work, everything=True, round=0)
        assert whole.new == 1 and whole.attributions[0].boundary == "none"
    assert [outcome(ledger, name) for name in ("oracle", "wrong", "broken")] == ["succeeded", "task_failed", "env_failed"]
    assert ended_rollouts(ledger, desk.run_id, round=3) == []
    with pytest.raises(UnknownId, match="no run 'nobody'"):
        ended_rollouts(ledger, "nobody")

    # Labels of planted faults change no byte of what is found.
    ids = ended_rollouts(ledger, desk.run_id, everything=True)
    found: list[str] = []
    for labelled in (False, True):
        if labelled:
            ledger.append([ledger.new(FaultInjected(rollout_id=name, index=0, fault="timeout", place="call:0")) for name in ids])
        with replayer(ledger, desk) as at_work:
            found.append(digest([one.as_json() for _, one in attributions(ledger, ids, at_work)]))
    assert found[0] == found[1]

    # A world that is another now leaves it open; what is said last counts, and can be said again.
    other: Any = Replayer(ledger, root_seeds={desk.run_id: 7}, worlds={desk.world.version: _Simulated(desk.world)})
    with other:
        assert attribute_run(ledger, desk.run_id, other).new > 0
    assert outcome(ledger, "wrong") == "unknown"
    said = [event.body for event in ledger.read(kinds=["FindingRaised"], limit=100)]
    assert any(isinstance(body, FindingRaised) and body.fault == UNDECIDED and body.boundary is None for body in said)
    with replayer(ledger, desk) as at_work:
        attribute_run(ledger, desk.run_id, at_work)
    assert outcome(ledger, "wrong") == "task_failed"


class _Simulated:
    fidelity = "simulated"

    def __init__(self, world: Any) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)


def tally_audit(ledger: LedgerHandle, *arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        audit(list(arguments), prog_name="tally audit", obj=Settings(database_url=ledger.url, project=ledger.project))
    return ended.value.code


def test_the_command_prints_boundaries_and_both_denominators(ledger: LedgerHandle, capsys: pytest.CaptureFixture[str]) -> None:
    desk = history(ledger)
    before = ledger.barrier()
    assert tally_audit(ledger, "attribute", desk.run_id, "--dry-run") == 1
    shown = capsys.readouterr().out
    assert "world_crashed" in shown and "3 findings would be appended" in shown and "0/1" in shown and ledger.barrier() == before
    assert tally_audit(ledger, "attribute", desk.run_id, "--json", "--all") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["new"] == 4 and {one["boundary"] for one in told["attributions"]} == {"none", "task", "environment"}
    assert {(line["policy"], line["of_measured"], line["of_expected"]) for line in told["coverage"]} == {
        ("oracle", 1.0, 1.0), ("wrong", 0.0, 0.0), ("idle", 0.0, 0.0), ("broken", None, 0.0)
    }  # fmt: skip
