import json
from pathlib import Path

import pytest

from audit import reverify as again
from audit.asked_rollouts import filter_of
from ledger import queries
from ledger.errors import MethodError, SettingsError
from ledger.events import FindingRaised, Rejudged
from ledger.ledger import LedgerHandle
from ledger.queries import EVERYTHING, Filter
from tests.audit.verifier_cases import DESK, bound, says, tally
from tests.builders import DeskHistory
from training.rollout.judge import Judging
from training.verifiers import verifiers


def history(ledger: LedgerHandle) -> dict[str, str]:
    made = DeskHistory(ledger, tasks=1)
    ids = {script: made.rollout(made.group(0, script), 0, script, script) for script in ("oracle", "ignores_cooldown", "duplicate_sender")}
    ids["broken"] = made.rollout(made.group(0, "broken"), 0, "broken", "oracle", fault="world_error")
    made.judge_and_reward()
    return ids


def test_i5_flips_both_ways_are_listed_and_both_verdicts_are_kept(
    ledger: LedgerHandle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = history(ledger)
    # Everything that the desk's own verifier says, the other way round.
    file = tmp_path / "contrary.py"
    file.write_text(
        "from training.verifiers import Condition, Verdict, verifiers\n"
        "def contrary(s0, s_end, trace, task, *, ask=None):\n"
        "    passed = verifiers['desk_conditions'](s0, s_end, trace, task).passed\n"
        "    return Verdict((Condition('C', 'failed' if passed else 'passed', {'was': passed}),))\n"
    )
    before = ledger.barrier()
    assert tally(ledger, "reverify", "--verifier", str(file), "--dry-run", "--json") == 1
    dry = json.loads(capsys.readouterr().out)
    assert ledger.barrier() == before and dry["judged"] == 3 and dry["left_out"] == {"rollouts ended by world_error": 1}
    measured = dry["reverify_agreement"]["measured"]
    assert (measured["agreement"], measured["passed_before"], measured["passed_after"]) == (0.0, 1, 2)
    assert measured["flips"] == {"passed to failed": 1, "failed to passed": 2}

    assert tally(ledger, "reverify", "--verifier", str(file), "--json") == 1
    assert json.loads(capsys.readouterr().out)["appended"] == 7
    rejudged = [event.body for event in ledger.read(kinds=["Rejudged"]) if isinstance(event.body, Rejudged)]
    assert {body.rollout_id for body in rejudged} == {ids["oracle"], ids["ignores_cooldown"], ids["duplicate_sender"]}
    detail = queries.rollout_detail(ledger, ids["oracle"])
    assert detail.line.outcome == "succeeded"
    assert {(v.verifier, v.passed) for v in detail.verdicts} >= {("desk_conditions", True), ("contrary", False)}
    assert tally(ledger, "reverify", "--verifier", str(file), "--json") == 0
    assert json.loads(capsys.readouterr().out)["appended"] == 0

    assert tally(ledger, "reverify", "--verifier", str(file), "--counts", "--where", f"rollout_id={ids['oracle']}") == 0
    assert queries.rollout_detail(ledger, ids["oracle"]).line.outcome == "task_failed"


def test_i5_the_same_version_on_the_same_ends_agrees_and_adds_nothing(ledger: LedgerHandle, capsys: pytest.CaptureFixture[str]) -> None:
    history(ledger)
    before = ledger.barrier()
    assert tally(ledger, "reverify", "--verifier", "desk_conditions") == 0
    assert "agreement 1.0000 over 3; passed before 1, after 1" in capsys.readouterr().out
    assert ledger.barrier() == before


def test_i5_a_version_that_says_otherwise_on_the_same_end_is_a_finding_about_it(ledger: LedgerHandle) -> None:
    ids = history(ledger)
    sometimes = bound(says(lambda s0, s_end, trace, task: False), "sometimes")
    first = again.reverify(ledger, sometimes, lambda name: DESK, Filter(rollout_id=ids["oracle"]))
    judging = Judging(sometimes, "program", "second_opinion")
    assert again.append(ledger, first, judging) == 3
    queries.fresh(ledger)
    turned = bound(says(lambda s0, s_end, trace, task: True), "sometimes")
    second = again.reverify(ledger, turned, lambda name: DESK, Filter(rollout_id=ids["oracle"]))
    result = second.result()
    assert (result.status, result.fault) == ("fail", "verifier_nondeterministic")
    assert result.measured["flips"] == {"failed to passed": 1}
    assert again.append(ledger, second, Judging(turned, "program", "second_opinion")) == 2
    queries.fresh(ledger)
    said = [v.passed for v in queries.verdicts(ledger, [ids["oracle"]])[ids["oracle"]] if v.verifier == "sometimes"]
    assert said == [False, True]
    assert not [event for event in ledger.read(kinds=["FindingRaised"]) if isinstance(event.body, FindingRaised)]


def test_a_limit_takes_the_oldest(ledger: LedgerHandle) -> None:
    ids = history(ledger)
    found = again.reverify(ledger, verifiers.bind("end_state"), lambda name: DESK, EVERYTHING, limit=1)
    assert [item.line.rollout_id for item in found.again] == [ids["oracle"]] and found.total == 4
    assert found.agreement == 1.0


def test_misuse_names_what_is_allowed(tmp_path: Path) -> None:
    assert filter_of(["policy=x", "round=3", "counted=true"]) == Filter(policy="x", round=3, counted=True)
    for wrong in ("policy", "colour=red", "round=many", "counted=1"):
        with pytest.raises(SettingsError, match="allowed"):
            filter_of([wrong])
    with pytest.raises(SettingsError, match="each name once"):
        filter_of(["policy=a", "policy=b"])
    with pytest.raises(MethodError, match="no verifier and no Python file"):
        again.verifier_from("nothing")
    empty = tmp_path / "empty.py"
    empty.write_text("")
    with pytest.raises(MethodError, match="has no function empty"):
        again.verifier_from(str(empty))
