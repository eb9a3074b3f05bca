import pytest

from audit.evaluation import Question, evaluate
from audit.evaluation_record import append, measured, measured_events, reads_of_test, record_reads
from audit.statistics.success_rate import wilson
from ledger.canonical import parse
from ledger.errors import UnknownId
from ledger.events import ReviewDecided
from ledger.ledger import LedgerHandle
from tests.evaluation_histories import Attempt, EvaluatedRun


def test_success_is_shown_of_the_measured_and_of_the_expected(ledger: LedgerHandle) -> None:
    # The report's fixture: 8 samples, 2 right and 2 that an error broke, are .25 of all and .3333 of the measured.
    run = EvaluatedRun(ledger)
    policy = run.version("tiny-a", stage="rl", step=3)
    rows = [
        [Attempt(True), Attempt(False)],
        [Attempt(True), Attempt(ended_by="world_error", judged=False)],
        [Attempt(None), Attempt(False)],
        [Attempt(False)] * 2,
    ]
    for task, row in enumerate(rows):
        run.group(task, "tiny", policy, row)
    cell = evaluate(ledger, Question((run.run_id,))).cells[0]
    assert cell.estimates["success"].value == pytest.approx(2 / 6) and cell.estimates["success_of_expected"].value == 0.25
    assert cell.counts.as_json() == {
        "expected": 8, "measured": 6, "masked": 0, "failed": 2, "omitted": 0, "unknown": 0,
        "failures": {"env_failed": 1, "verifier_failed": 1},
    }  # fmt: skip
    assert (cell.stage, cell.step, cell.seed) == ("rl", 3, 7)


def test_unknown_is_what_is_left_and_masked_is_counted(ledger: LedgerHandle) -> None:
    run = EvaluatedRun(ledger)
    policy = run.version("tiny-a")
    ids = run.group(
        0,
        "tiny",
        policy,
        [Attempt(True), Attempt(ended_by=None), Attempt(judged=False), None, Attempt(False), Attempt(ended_by="turn_limit", passed=False)],
    )
    found = evaluate(ledger, Question((run.run_id,), masked=frozenset({str(ids[4])}))).cells[0]
    assert (found.counts.expected, found.counts.measured, found.counts.masked, found.counts.omitted, found.counts.unknown) == (
        6,
        2,
        1,
        0,
        3,
    )
    assert found.estimates["success"].value == 0.5
    assert {name: found.estimates[f"ended_by:{name}"].value for name in ("finished", "turn_limit")} == {
        "finished": 2 / 3,
        "turn_limit": 1 / 3,
    }


def test_what_a_rollout_cost_and_which_conditions_it_passed(ledger: LedgerHandle) -> None:
    run = EvaluatedRun(ledger)
    policy = run.version("tiny-a")
    run.group(0, "tiny", policy, [Attempt(True, calls=[("list_tickets", {})], wall_s=1.0), Attempt(False, wall_s=None, side_effects=3)])
    run.group(1, "tiny", policy, [Attempt(True, wall_s=5.0), Attempt(True, wall_s=2.0)])
    values = {name: estimate.value for name, estimate in evaluate(ledger, Question((run.run_id,))).cells[0].estimates.items()}
    assert (values["reward"], values["condition:mailed"], values["condition:matching"]) == (0.75, 0.75, 1.0)
    assert (values["tokens_in"], values["tokens_out"], values["tool_calls"], values["model_calls"]) == (30, 5, 0.25, 1)
    assert values["side_effects"] == 0.75
    latency = evaluate(ledger, Question((run.run_id,))).cells[0].estimates["latency_mean"]
    assert (latency.value, latency.n) == (pytest.approx(8 / 3), 3) and values["latency_p50"] == 2.0 and values["latency_p99"] == 5.0


def test_a_reviewed_verdict_changes_the_measurement_and_both_are_kept(ledger: LedgerHandle) -> None:
    run = EvaluatedRun(ledger)
    policy = run.version("tiny-a")
    ids = run.group(0, "tiny", policy, [Attempt(False), Attempt(False)])
    question = Question((run.run_id,))
    append(ledger, measured_events(ledger, evaluate(ledger, question)))
    reason = ledger.pending("it did what was asked")
    run.append(
        ReviewDecided(
            review_id="rv1",
            rollout_id=str(ids[0]),
            verdict_ids=[],
            reviewer_id="tester",
            decision="passed",
            right_verdict_id=None,
            reason=reason.ref,
        ),
        blobs=(reason,),
    )
    again = evaluate(ledger, question)
    assert again.cells[0].estimates["success"].value == 0.5
    append(ledger, measured_events(ledger, again))
    assert [item.value for item in measured(ledger, run.run_id) if item.metric == "success"] == [0.0, 0.5]


def test_appending_twice_adds_nothing_and_the_table_holds_the_rows(ledger: LedgerHandle) -> None:
    run = EvaluatedRun(ledger)
    run.measure("tiny", run.version("tiny-a"), [[True, False], [True, True], [False, False], [True, False]])
    found = evaluate(ledger, Question((run.run_id,)))
    first = append(ledger, measured_events(ledger, found))
    assert first == len(found.cells[0].estimates)
    assert append(ledger, measured_events(ledger, evaluate(ledger, Question((run.run_id,))))) == 0
    success = next(item for item in measured(ledger, run.run_id) if item.metric == "success")
    assert (success.value, success.n, success.expected, success.slice, success.split) == (0.5, 8, 8, "instances", "validation")
    assert success.low < 0.5 < success.high and success.table is not None
    table = parse(ledger.blob(success.table.blob_id))
    assert sum(row["passed"] for row in table["rows"]) == 4 and table["counts"]["unknown"] == 0


def test_the_interval_is_as_wide_as_the_tasks_allow(ledger: LedgerHandle) -> None:
    run = EvaluatedRun(ledger)
    run.measure("tiny", run.version("tiny-a"), [[True] * 6, [False] * 6, [True] * 6, [False] * 6])
    success = evaluate(ledger, Question((run.run_id,))).cells[0].estimates["success"]
    low, high = wilson(12, 24, level=0.95)
    assert success.method.endswith(":bundle") and success.width > 1.5 * (high - low)


def test_versions_temperatures_and_slices_are_apart_and_fixed_rules_stand_beside(ledger: LedgerHandle) -> None:
    run = EvaluatedRun(ledger)
    first, second = run.version("tiny-a", stage="teach", step=1), run.version("tiny-b", stage="rl", step=2)
    rule = run.version("scripted-mail", scripted=True)
    for version, passed in ((first, False), (second, True)):
        run.measure("tiny", version, [[passed]] * 4)
    run.measure("tiny", second, [[False]] * 4, temperature=0.0)
    run.measure("mail", rule, [[True]] * 3, temperature=None)
    found = evaluate(ledger, Question((run.run_id,), slices={run.bundles[0].bundle_id: "names"}))
    assert {cell.key.slice for cell in found.cells} == {"instances", "names"}
    there = [cell for cell in found.cells if cell.key.slice == "instances"]
    assert {(cell.key.model_version, cell.key.temperature): cell.estimates["success"].value for cell in there} == {
        (first, 1.0): 0.0, (second, 1.0): 1.0, (second, 0.0): 0.0, (rule, None): 1.0,
    }  # fmt: skip
    assert [cell.scripted for cell in there] == [False, False, False, True]
    assert f"mail and {first} differ in 1 measured tasks of slice instances" in found.notes
    only = evaluate(ledger, Question((run.run_id,), model_versions=(second,), temperature=1.0))
    assert {(cell.key.model_version, cell.key.temperature) for cell in only.cells} == {(second, 1.0), (rule, None)}


def test_a_learned_policy_without_a_fixed_rule_beside_it_says_so(ledger: LedgerHandle) -> None:
    run = EvaluatedRun(ledger)
    run.measure("tiny", run.version("tiny-a"), [[True]])
    assert evaluate(ledger, Question((run.run_id,))).notes == ("no fixed rule was run on the tasks of slice instances",)


def test_training_bundles_are_measured_only_when_they_have_a_slice(ledger: LedgerHandle) -> None:
    run = EvaluatedRun(ledger, split="train", slice=None)
    run.measure("tiny", run.version("tiny-a"), [[True], [False]])
    with pytest.raises(UnknownId, match="no rollout of"):
        evaluate(ledger, Question((run.run_id,)))
    found = evaluate(ledger, Question((run.run_id,), slices={run.bundles[1].bundle_id: "instances"}))
    assert [(cell.key.slice, cell.counts.expected, cell.estimates["success"].value) for cell in found.cells] == [("instances", 1, 0.0)]


def test_a_held_out_bundle_that_nobody_sliced_is_held_out(ledger: LedgerHandle) -> None:
    run = EvaluatedRun(ledger, split="test", slice=None)
    run.measure("tiny", run.version("tiny-a"), [[True]])
    assert [cell.key.slice for cell in evaluate(ledger, Question((run.run_id,))).cells] == ["held_out"]


def test_slots_that_nothing_tells_the_version_of_are_counted_apart(ledger: LedgerHandle) -> None:
    run = EvaluatedRun(ledger)
    first, second = run.version("tiny-a"), run.version("tiny-b")
    run.measure("tiny", first, [[True]])
    run.group(1, "tiny", first, [None, None])
    assert evaluate(ledger, Question((run.run_id,))).cells[0].counts.unknown == 2
    run.measure("tiny", second, [[True]])
    found = evaluate(ledger, Question((run.run_id,)))
    assert found.unattributed == {"tiny": 2} and {cell.counts.unknown for cell in found.cells} == {0}
    assert "2 slots of tiny have no attempt, and nothing tells of which model version" in found.notes


def test_every_read_of_test_bundles_is_recorded_with_its_purpose(ledger: LedgerHandle) -> None:
    run = EvaluatedRun(ledger, split="test")
    policy = run.version("tiny-a")
    run.measure("tiny", policy, [[True]])
    found = evaluate(ledger, Question((run.run_id,)))
    assert record_reads(ledger, found, purpose="selection", reader="grid") == 1
    assert record_reads(ledger, found, purpose="selection", reader="grid") == 0
    assert record_reads(ledger, found, purpose="report", reader="table") == 1
    run.measure("tiny", policy, [[True], [False]], temperature=0.0)
    assert record_reads(ledger, evaluate(ledger, Question((run.run_id,))), purpose="selection", reader="grid") == 1
    assert reads_of_test(ledger, [run.run_id]) == {"selection": 2, "report": 1}
    assert reads_of_test(ledger, ["other"]) == {"selection": 0, "report": 0}


def test_what_is_not_there_is_named(ledger: LedgerHandle) -> None:
    run = EvaluatedRun(ledger)
    run.measure("tiny", run.version("tiny-a"), [[True]])
    with pytest.raises(UnknownId, match="no run 'nothing'"):
        evaluate(ledger, Question(("nothing",)))
    with pytest.raises(UnknownId, match="no model version 'tiny-z'"):
        evaluate(ledger, Question((run.run_id,), model_versions=("tiny-z",)))
    with pytest.raises(UnknownId, match="nothing was measured"):
        measured(ledger, run.run_id)
