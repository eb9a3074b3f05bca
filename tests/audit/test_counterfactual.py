"""One update of four rollouts, trained as the trainer does, and what it would have been had verdicts been others."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from audit.counterfactual_changes import of_decisions, of_recall
from audit.counterfactual_updates import reached
from ledger.errors import SettingsError
from ledger.events import GroupDispatched, ReviewDecided, RewardDerived, RunConfigured, UpdateApplied
from ledger.ledger import LedgerHandle
from ledger.queries import EVERYTHING, fresh, rollouts, verdicts
from tests.audit.verifier_cases import tally
from tests.builders import SAMPLED, DeskHistory, small_tokenizer
from training.optimise.batch import JudgedRound, assemble
from training.optimise.batch_events import BatchName, record
from training.optimise.joined import joined_rewards
from training.optimise.recipe import Recipe, reinforce_recipe
from training.optimise.updates import loss_weights
from training.rewards import rewards
from training.run_config import RunConfig
from training.view_read import read_round

RUN, VERSION = "run-counterfactual", f"{SAMPLED}-1"
TASK = 6
"""Of the validation split, so that its rollouts are an evaluation too."""
SCRIPTS = ("oracle", "gives_up", "duplicate_sender", "oracle")


def config(**stage: Any) -> RunConfig:
    reinforce = {"stage": "reinforce", "rounds": 1, "groups": 1, "group_size": 4, "optimiser": {"learning_rate": 1e-3}, **stage}
    return RunConfig.model_validate({
        "name": "counter", "seed": 1, "tasks": [{"world": "ticket_desk", "count": 1}],
        "train": {"policy": {"source": "tiny", "preset": "0.2M"}, "stages": [{"advantage": {"name": "group_mean"}, **reinforce}]},
    })  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """What one update was made of: the rollouts by slot, its weights, and the rule of its rewards."""

    ids: tuple[str, ...]
    update: UpdateApplied


def trained(ledger: LedgerHandle, folder: Path, **stage: Any) -> Trained:
    made = config(**stage)
    history = DeskHistory(ledger, tasks=TASK + 1, model=small_tokenizer(folder / "tiny", ["send_email to update_ticket"] * 3))
    blob = ledger.pending_json(made.model_dump(mode="json"))
    group = GroupDispatched(
        group_id="g-cf", bundle_id=history.bundles[TASK].bundle_id, size=4, experiment_id="e-cf", run_id=RUN, round=1, policy=SAMPLED,
        rollout_kind="ordinary",
    )  # fmt: skip
    run = RunConfigured(run_id=RUN, experiment_id="e-cf", name="counter", config=blob.ref, config_digest="0" * 64, root_seed=1)
    ledger.append([ledger.new(run, blob), ledger.new(group)])
    ids = tuple(history.rollout("g-cf", TASK, SAMPLED, script, slot=slot) for slot, script in enumerate(SCRIPTS))
    history.judge_and_reward()
    assert made.train is not None
    batch_id, weights = applied(ledger, reinforce_recipe(made.train.stages[0], shuffle_seed=0), ids)  # type: ignore[arg-type]
    update = UpdateApplied(
        update_id="u-cf", batch_id=batch_id, run_id=RUN, step=0, model_version_before=VERSION, model_version_after="sampled-2",
        weights=weights, stage="rl", round=1,
    )  # fmt: skip
    ledger.append([ledger.new(update)])
    fresh(ledger)
    return Trained(ids, update)


def applied(ledger: LedgerHandle, recipe: Recipe, ids: tuple[str, ...]) -> tuple[str, Any]:
    """The batch as the trainer assembles and records it, and its weights."""
    read = read_round(ledger, ids, trained=VERSION)
    lines = {line.rollout_id: line for line in rollouts(ledger, EVERYTHING, limit=100).lines}
    derived = [event.body for event in ledger.read(kinds=["RewardDerived"]) if isinstance(event.body, RewardDerived)]
    rule_id = rewards.bind("all_conditions").ref.method_id
    reward, reward_ids = joined_rewards(ids, {ident: lines[ident].verdict_id for ident in ids}, derived, rule_id=rule_id)
    rows = [row for built in read.built for row in built.rows if row.mask_T.any()]
    judged = JudgedRound(read.view, tuple(r.open_reason for r in rows), tuple(r.index for r in rows), reward, reward_ids, {})
    made = assemble(judged, recipe, dispatched=ids, current=[VERSION])
    return record(ledger, BatchName(RUN, "rl", 1, VERSION), made, recipe.method_ids()), loss_weights(made)


def test_a_verifier_that_lets_double_mails_pass_moves_every_advantage_of_the_group(
    ledger: LedgerHandle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = trained(ledger, tmp_path)
    assert [weight.advantage for weight in made.update.weights] == [0.5, -0.5, -0.5, 0.5]
    before = ledger.barrier()
    assert tally(ledger, "counterfactual", "--verifier", "desk_without_cooldown", "--where", f"run_id={RUN}", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert ledger.barrier() == before and found["appended"] is None
    assert (found["verdicts"], found["flips"], len(found["updates"])) == (4, 1, 1)
    update = found["updates"][0]
    assert update["reason"] == "" and update["recorded_gap"] < 1e-12
    # Rewards 1, 0, 1, 1 with mean 3/4 in place of 1, 0, 0, 1 with mean 1/2.
    told = update["effect"]["rollouts"]
    assert [told[ident]["after"]["advantage"] for ident in made.ids] == pytest.approx([0.25, -0.75, 0.25, 0.25])
    assert [told[ident]["before"]["advantage"] for ident in made.ids] == pytest.approx([0.5, -0.5, -0.5, 0.5])
    effect = update["effect"]
    assert (effect["rewards_changed"], effect["votes_changed"], effect["advantages_changed"], effect["sign_flips"]) == (1, 0, 4, 1)
    assert effect["largest_advantage_change"] == pytest.approx(0.75)
    # Each rollout weighs the same: shares 1/4 each before, |0.25|, |0.75|, |0.25|, |0.25| of 1.5 after.
    assert [told[ident]["after"]["share"] for ident in made.ids] == pytest.approx([1 / 6, 1 / 2, 1 / 6, 1 / 6])
    assert effect["share_moved"] == pytest.approx(1 / 4)
    assert found["not_derivable"] == {
        "updates_not_recomputed": 0, "refills": 0, "curriculum": 0, "unsampled_rollouts": 0, "later_policies": 1,
    }  # fmt: skip
    scores = [score for score in found["scores"] if score["model_version"] == VERSION]
    assert [(score["before"]["value"], score["after"]["value"], score["expected"]) for score in scores] == [(0.5, 0.75, 4)]
    assert scores[0]["after"]["of_expected"] == 0.75 and found["test_rollouts_left_unread"] == 0


def test_a_decision_of_a_person_does_the_same_and_can_be_recorded(
    ledger: LedgerHandle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = trained(ledger, tmp_path)
    assert tally(ledger, "counterfactual", "--decision", f"{made.ids[2]}=passed", "--append", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["updates"][0]["effect"]["share_moved"] == pytest.approx(1 / 4) and found["appended"] == 1

    # A recorded decision counts by now; what was trained stays what it was before it.
    verdict = rollouts(ledger, EVERYTHING, limit=100).lines
    told = next(line.verdict_id for line in verdict if line.rollout_id == made.ids[2])
    reason = ledger.pending("one mail was a copy")
    review = ReviewDecided(
        review_id="review-1", rollout_id=made.ids[2], verdict_ids=[str(told)], reviewer_id="person-1", decision="passed",
        right_verdict_id=None, reason=reason.ref,
    )  # fmt: skip
    ledger.append([ledger.new(review, reason)])
    fresh(ledger)
    again = reached(ledger, of_decisions(ledger, ["review-1"])).updates[0].effect
    assert again is not None and again.share_moved == pytest.approx(1 / 4) and again.count("reward") == 1


def test_a_recalled_verifier_leaves_no_reward_no_vote_and_no_gradient(ledger: LedgerHandle, tmp_path: Path) -> None:
    made = trained(ledger, tmp_path)
    line = rollouts(ledger, EVERYTHING, limit=1).lines[0]
    verifier_id = next(v.verifier_id for v in verdicts(ledger, [line.rollout_id])[line.rollout_id] if v.counts)
    changes = of_recall(ledger, str(verifier_id), EVERYTHING)
    assert set(changes.by_rollout) == set(made.ids) and all(change.new.passed is None for change in changes.by_rollout.values())
    found = reached(ledger, changes)
    effect = found.updates[0].effect
    assert effect is not None
    assert {(part.reward, part.votes, part.trains, part.reason) for part in effect.after.values()} == {(None, False, False, "unknown")}
    assert effect.flat_groups == (("g-cf",), ()) and found.not_derivable["refills"] == 1


def test_dropped_groups_without_variance_train_nothing_after_the_change(ledger: LedgerHandle, tmp_path: Path) -> None:
    made = trained(ledger, tmp_path, zero_variance="drop")
    decisions = [f"{made.ids[1]}=passed", f"{made.ids[2]}=passed"]
    effect = reached(ledger, of_decisions(ledger, decisions)).updates[0].effect
    assert effect is not None and effect.count("trains") == 4 and effect.count("votes") == 0
    assert {part.reason for part in effect.after.values()} == {"zero_variance"}


def test_an_update_that_cannot_be_recomputed_says_why_and_is_counted(ledger: LedgerHandle, tmp_path: Path) -> None:
    made = trained(ledger, tmp_path)
    # The same batch with other weights than its recipe gives: what was applied is not what can be derived.
    weights = [weight.model_copy(update={"weight": 0.9}) for weight in made.update.weights]
    other = made.update.model_copy(update={"update_id": "u-other", "weights": weights, "model_version_after": "sampled-3"})
    ledger.append([ledger.new(other)])
    fresh(ledger)
    found = reached(ledger, of_decisions(ledger, [f"{made.ids[2]}=passed"]))
    assert [item.effect is None for item in found.updates] == [False, True]
    assert "not the one that was recorded" in found.updates[1].reason and found.not_derivable["updates_not_recomputed"] == 1


def test_misuse_names_what_is_allowed(ledger: LedgerHandle) -> None:
    with pytest.raises(SettingsError, match="exactly one of"):
        tally(ledger, "counterfactual")
    with pytest.raises(SettingsError, match="exactly one of"):
        tally(ledger, "counterfactual", "--verifier", "end_state", "--recall", "end_state")
    with pytest.raises(SettingsError, match="=passed"):
        of_decisions(ledger, ["abc=maybe"])
