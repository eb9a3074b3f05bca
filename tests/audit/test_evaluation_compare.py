import pytest

from audit.evaluation import Question, evaluate
from audit.evaluation_compare import compare, gain_split
from audit.evaluation_record import append, compared_events, measured
from audit.evaluation_spent import chains, spent
from ledger.errors import StatisticRefused, UnknownId
from ledger.evaluated import runs
from ledger.ledger import LedgerHandle
from tests.evaluation_histories import Attempt, EvaluatedRun


def two(ledger: LedgerHandle, before, after, seed: int = 7, **further) -> tuple[EvaluatedRun, str, str]:
    run = EvaluatedRun(ledger, seed=seed, count=len(before), **further)
    old = run.version(f"tiny-a{seed}", stage="teach", step=1)
    new = run.version(f"tiny-b{seed}", stage="rl", step=2, parent=old, updates=2)
    run.measure("tiny", old, before)
    run.measure("tiny", new, after)
    return run, old, new


def test_the_flipped_tasks_are_named_both_ways(ledger: LedgerHandle) -> None:
    run, old, new = two(ledger, [[False], [False], [True], [True]], [[True], [True], [False], [True]])
    found = compare(evaluate(ledger, Question((run.run_id,))), [(old, new)])[0]
    names = [bundle.draft.name for bundle in run.bundles]
    assert {(flip.task, flip.gained) for flip in found.flips} == {(names[0], True), (names[1], True), (names[2], False)}
    assert found.gain.controls == {"gained": 2, "lost": 1, "both": 1, "neither": 0}
    assert (found.success_gain.value, found.reward_gain.value, found.success_before.value, found.success_after.value) == (
        0.25,
        0.25,
        0.5,
        0.75,
    )
    assert found.p_value.value == 1.0 and not found.regressed
    assert all(flip.before_rollout_id != flip.after_rollout_id for flip in found.flips)


def test_only_pairs_that_both_measured_are_compared(ledger: LedgerHandle) -> None:
    run, old, new = two(ledger, [[False, False], [True, True]], [[True, True]])
    third = run.version("tiny-c")
    run.group(1, "tiny", third, [Attempt(ended_by="world_error", judged=False), Attempt(True)])
    evaluation = evaluate(ledger, Question((run.run_id,)))
    found = compare(evaluation, [(old, new)])[0]
    assert (len(found.rows), found.unpaired, found.success_gain.value) == (2, 2, 1.0)
    assert "the arms were not measured on the same tasks everywhere; only pairs are compared" in found.notes
    lone = compare(evaluation, [(old, third)])[0]
    assert [(row["sample"], row["before"], row["after"]) for row in lone.rows] == [(1, 1.0, 1.0)]


def test_a_regression_beyond_chance_is_one_and_a_small_loss_is_none(ledger: LedgerHandle) -> None:
    run, old, new = two(ledger, [[True]] * 8, [[False]] * 8)
    evaluation = evaluate(ledger, Question((run.run_id,)))
    assert compare(evaluation, [(old, new)])[0].regressed and not compare(evaluation, [(new, old)])[0].regressed
    few = evaluate(ledger, Question((run.run_id,), slices={bundle.bundle_id: "few" for bundle in run.bundles[:3]}, slice="few"))
    assert not compare(few, [(old, new)])[0].regressed and compare(few, [(old, new)])[0].success_gain.value == -1.0


def test_several_seeds_are_paired_each_with_its_own_and_the_interval_is_over_seeds(ledger: LedgerHandle) -> None:
    first = two(ledger, [[False]] * 4, [[True], [True], [False], [False]], seed=1)
    second = two(ledger, [[False]] * 4, [[True]] * 4, seed=2)
    evaluation = evaluate(ledger, Question((first[0].run_id, second[0].run_id)))
    found = compare(evaluation, [first[1:], second[1:]])[0]
    assert found.success_gain.value == 0.75 and found.success_gain.controls["seeds"] == 2
    # Seed means .5 and 1: half width 12.7062 * .25, wider than any bootstrap of them.
    assert (found.success_gain.method, found.success_gain.high) == ("seed_t", pytest.approx(0.75 + 12.706205 * 0.25, abs=1e-5))
    assert {flip.seed for flip in found.flips} == {1, 2}
    assert found.success_after.value == 0.75 and any("seed" in note for note in found.success_after.caveats)


def test_the_notes_name_the_axis_and_what_each_arm_took(ledger: LedgerHandle) -> None:
    run, old, new = two(ledger, [[False]] * 2, [[True]] * 2)
    evaluation = evaluate(ledger, Question((run.run_id,)))
    found = compare(evaluation, [(old, new)], axis="updates", spent=spent(ledger, [old, new]))[0]
    assert found.axis == "updates" and {item.axis for item in (found.success_gain, found.reward_gain, found.gain)} == {"updates"}
    assert found.notes[0].startswith("the arms are matched on updates; the same number of updates is not the same compute")
    assert found.notes[1] == f"{old} took no update that is recorded; {new} took 2 updates, 2 rollouts in the loss, 3 cpu_s"
    with pytest.raises(StatisticRefused, match="axis is 'compute'; allowed: tasks, updates"):
        compare(evaluation, [(old, new)], axis="compute")


def test_a_fixed_rule_is_compared_with_what_samples_at_any_temperature(ledger: LedgerHandle) -> None:
    run, _, new = two(ledger, [[False]] * 2, [[True]] * 2)
    rule = run.version("scripted-mail", scripted=True)
    run.measure("mail", rule, [[True], [False]], temperature=None)
    run.measure("tiny", new, [[False], [False]], temperature=0.0)
    found = compare(evaluate(ledger, Question((run.run_id,))), [(rule, new)])
    assert {(item.temperature, item.success_gain.value) for item in found} == {(1.0, 0.5), (0.0, -0.5)}


def test_a_version_measured_under_two_policies_is_ambiguous(ledger: LedgerHandle) -> None:
    run, old, new = two(ledger, [[False]] * 2, [[True]] * 2)
    run.measure("other", new, [[True]] * 2)
    with pytest.raises(StatisticRefused, match="was measured as policy other and tiny; allowed: one in a run"):
        compare(evaluate(ledger, Question((run.run_id,))), [(old, new)])


def test_what_cannot_be_compared_is_refused(ledger: LedgerHandle) -> None:
    run, old, new = two(ledger, [[False]] * 2, [[True]] * 2)
    other = run.version("tiny-c")
    run.measure("tiny", other, [[True]], temperature=0.0)
    evaluation = evaluate(ledger, Question((run.run_id,)))
    with pytest.raises(StatisticRefused, match="compared with itself"):
        compare(evaluation, [(old, old)])
    with pytest.raises(UnknownId, match="no slice and temperature has measured rollouts of both"):
        compare(evaluation, [(new, other)])


def test_a_comparison_is_appended_once_with_its_pairs(ledger: LedgerHandle) -> None:
    run, old, new = two(ledger, [[False]] * 2, [[True]] * 2)
    found = compare(evaluate(ledger, Question((run.run_id,))), [(old, new)])
    assert append(ledger, compared_events(ledger, found)) == 4
    assert append(ledger, compared_events(ledger, found)) == 0
    bodies = {body.metric: body for body in measured(ledger, run.run_id)}
    assert set(bodies) == {"success_gain", "reward_gain", "flip_gain", "flip_p_value"}
    assert (bodies["success_gain"].model_version, bodies["success_gain"].against, bodies["success_gain"].axis) == (new, old, "tasks")
    assert bodies["flip_gain"].settings["gained"] == 2


def test_the_gain_is_split_by_the_stages_that_the_run_was_configured_with(ledger: LedgerHandle) -> None:
    run, old, new = two(ledger, [[True], [False], [False], [False]], [[True], [True], [True], [False]])
    base = run.version("tiny-0", stage="copying", step=0)
    late = run.version("tiny-late", stage="rl", step=9)
    run.measure("tiny", base, [[False]] * 4)
    evaluation = evaluate(ledger, Question((run.run_id,)))
    measured_versions = frozenset(cell.key.model_version for cell in evaluation.cells)
    found = chains(ledger, runs(ledger), measured_versions)
    assert found == [{"base": base, "sft": old, "rl": new}] and late not in measured_versions
    parts = {item.name: item.value for item in gain_split(evaluation, found, slice="instances", temperature=1.0)}
    assert parts == {
        "total": 0.75,
        "increment:sft": 0.25,
        "increment:rl": 0.5,
        "share:sft": pytest.approx(1 / 3),
        "share:rl": pytest.approx(2 / 3),
    }
    assert chains(ledger, runs(ledger), frozenset({base, new})) == []
    with pytest.raises(StatisticRefused, match="has no measured rollout in slice names at 1"):
        gain_split(evaluation, found, slice="names", temperature=1.0)
