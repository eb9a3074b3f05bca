"""Batches: who votes, who trains, what they are refused for, and that every dispatched rollout is accounted for."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ledger.errors import BatchRefused
from tests.view_builder import Rolled, reward_of, rewarded, view_of
from training.advantages import advantages
from training.filters import filters
from training.objectives import objectives
from training.optimise.batch import Assembled, JudgedRound, assemble
from training.optimise.batch_events import batch_rows, columns
from training.optimise.recipe import BoundTerm, Recipe
from training.rewards import Scored
from training.weightings import weightings


def recipe(advantage: str = "group_mean", weighting: str = "rollout_token_mean", **changes: Any) -> Recipe:
    term = BoundTerm(objectives.bind("ppo_clip"), weightings.bind(weighting))
    return Recipe(**{"advantage": advantages.bind(advantage), "terms": (term,), **changes})


def judged(*rolled: Rolled, reward: Scored | None = None, unreproduced: Mapping[str, str] | None = None) -> JudgedRound:
    view = view_of(*rolled)
    index_Q = [int(np.sum(view.rollout_Q[:q] == r)) for q, r in enumerate(view.rollout_Q)]
    rewards = reward or reward_of(*rolled)
    ids = tuple(f"w-{rollout_id}" for rollout_id in view.rollout_id_R)
    return JudgedRound(view, ("start",) * len(index_Q), tuple(index_Q), rewards, ids, unreproduced or {})


def made(*rolled: Rolled, by: Recipe | None = None, reward: Scored | None = None) -> Assembled:
    given = judged(*rolled, reward=reward)
    return assemble(given, by or recipe(), dispatched=given.view.rollout_id_R, current=["m-1"])


def advantage_R(batch: Assembled) -> list[float | None]:
    return [row.advantage for row in batch_rows(batch)[0]]


@pytest.mark.parametrize("outcome", ["env_failed", "verifier_failed", "harness_failed", "aborted", "unknown"])
def test_what_says_nothing_about_the_policy_neither_votes_nor_trains(outcome: str) -> None:
    # F1 of the golden fixtures: rewards [1, 1, 0, 0], the second one not valid.
    batch = made(*rewarded(1.0), Rolled(1.0, outcome=outcome), *rewarded(0.0, 0.0))
    rows, exclusions = batch_rows(batch)
    assert exclusions == {outcome: ["r1"]}
    assert [row.advantage for row in rows] == pytest.approx([2 / 3, -1 / 3, -1 / 3])


def test_a_rollout_without_a_reward_is_excluded_and_never_a_zero() -> None:
    rows, exclusions = batch_rows(made(*rewarded(1.0, None, 0.0)))
    assert exclusions == {"no_reward": ["r1"]} and [row.advantage for row in rows] == [0.5, -0.5]


def test_rows_of_one_rollout_share_its_advantage_and_vote_once() -> None:
    # F3: rewards [1, 1, 1, 0] where the first three are rows of one rollout.
    rows, _ = batch_rows(made(Rolled(1.0, steps=(1, 1, 1), cuts=(1, 2)), Rolled(0.0)))
    assert [row.advantage for row in rows] == [0.5, -0.5] and len(rows[0].rows) == 3
    assert sum(row.credit for row in rows[0].rows) == pytest.approx(rows[1].rows[0].credit)


def test_rollouts_of_other_versions_are_stale_and_do_not_vote() -> None:
    given = judged(*rewarded(100.0, 1.0, 0.0))
    given = replace(given, view=replace(given.view, model_version_R=("m-0", "m-1", "m-1")))
    batch = assemble(given, recipe(), dispatched=given.view.rollout_id_R, current=["m-1"])
    assert batch_rows(batch)[1] == {"stale": ["r0"]} and advantage_R(batch) == [0.5, -0.5]


def test_a_recipe_knows_what_its_filters_read() -> None:
    def asks(*names: str) -> tuple[bool, bool]:
        made = recipe(filters=tuple(filters.bind(name) for name in names))
        return made.reads_trainer, made.judges_lag

    assert asks() == asks("truncated") == (False, False)
    assert asks("ratio") == (True, False) and asks("truncated", "stale") == (False, True)


def test_limit_ended_takes_part_unless_the_recipe_excludes_it() -> None:
    rolled = (Rolled(0.0, ended_by="turn_limit", outcome="limit_ended"), *rewarded(1.0, 1.0))
    assert len(batch_rows(made(*rolled))[0]) == 3
    rows, exclusions = batch_rows(made(*rolled, by=recipe(truncated="exclude")))
    assert exclusions == {"limit_ended": ["r0"]} and [row.advantage for row in rows] == [0.0, 0.0]


def test_what_a_filter_drops_still_votes() -> None:
    rolled = (Rolled(0.0, ended_by="token_limit"), *rewarded(1.0, 0.5))
    rows, exclusions = batch_rows(made(*rolled, by=recipe(filters=(filters.bind("truncated"),))))
    assert exclusions == {} and [row.advantage for row in rows] == [None, 0.5, 0.0]
    assert (rows[0].votes, rows[0].trains, rows[0].reason, rows[0].rows) == (True, False, "truncated:token_limit", [])


def test_groups_without_variance_are_counted_and_dropped_where_asked() -> None:
    rolled = (*rewarded(1.0, 1.0, group="same"), *rewarded(1.0, 0.0, group="differs"), *rewarded(1.0, group="single"))
    kept, dropped = made(*rolled), made(*rolled, by=recipe(zero_variance="drop"))
    assert kept.counters["zero_variance_groups"] == dropped.counters["zero_variance_groups"] == 1
    assert [row.trains for row in batch_rows(kept)[0]] == [True] * 5
    assert [(row.trains, row.reason) for row in batch_rows(dropped)[0]][:3] == [
        (False, "zero_variance"),
        (False, "zero_variance"),
        (True, None),
    ]
    assert kept.counters["fallback:singleton"] == 1


def test_a_rollout_without_trained_tokens_votes_only() -> None:
    rows, _ = batch_rows(made(Rolled(1.0, steps=(0,)), *rewarded(0.0, 0.5)))
    assert rows[0].reason == "no_trained_tokens" and rows[0].votes
    assert [row.advantage for row in rows] == [None, -0.5, 0.0]


def test_a_failed_environment_changes_nothing_of_the_others() -> None:
    healthy = (*rewarded(1.0, 0.0, group="a", tokens=3), *rewarded(0.5, 0.0, group="b", tokens=2))
    broken = [Rolled(1.0, outcome="env_failed", group=group, steps=(4,), rollout_id=f"x{n}") for n, group in enumerate("aab")]
    for weighting in ("token_mean", "rollout_token_mean", "row_mean"):
        alone, together = made(*healthy, by=recipe(weighting=weighting)), made(*healthy, *broken, by=recipe(weighting=weighting))
        (a,), (b,) = alone.parts(), together.parts()
        assert a.rollout_id_Q == b.rollout_id_Q and np.array_equal(a.id_T, b.id_T)
        assert np.array_equal(a.adv_T, b.adv_T) and np.array_equal(a.terms[0].weight_T, b.terms[0].weight_T)


def test_the_batch_holds_exactly_what_was_dispatched() -> None:
    given = judged(*rewarded(1.0, None, 0.0))
    rows, exclusions = batch_rows(assemble(given, recipe(), dispatched=["r0", "r1", "r2"], current=["m-1"]))
    assert sorted([row.rollout_id for row in rows] + [name for names in exclusions.values() for name in names]) == ["r0", "r1", "r2"]
    with pytest.raises(BatchRefused, match=r"1 of 4 dispatched rollouts are missing \(r9\)"):
        assemble(given, recipe(), dispatched=["r0", "r1", "r2", "r9"], current=["m-1"])
    with pytest.raises(BatchRefused, match=r"1 were not dispatched \(r2\)"):
        assemble(given, recipe(), dispatched=["r0", "r1"], current=["m-1"])


def test_a_group_of_two_tasks_is_refused() -> None:
    # B10: prompts duplicated as p1, p2, p1, p2 and grouped by place.
    given = judged(*rewarded(1.0, 0.0, 1.0, 0.0))
    given = replace(given, view=replace(given.view, bundle_id_R=("p1", "p2", "p1", "p2"), group_id_R=("a", "a", "b", "b")))
    with pytest.raises(BatchRefused, match="holds rollouts of tasks p1 and p2"):
        assemble(given, recipe(), dispatched=given.view.rollout_id_R, current=["m-1"])
    # F7: by their own groups the rewards do not differ.
    right = replace(given, view=replace(given.view, group_id_R=("a", "b", "a", "b")))
    assert advantage_R(assemble(right, recipe(), dispatched=right.view.rollout_id_R, current=["m-1"])) == [0.0] * 4


def test_sampling_that_the_trainer_does_not_reproduce_is_refused() -> None:
    given = judged(*rewarded(1.0, 0.0), unreproduced={"r0": "top_p 0.9"})
    with pytest.raises(BatchRefused, match=r"rollout r0 were sampled with top_p 0\.9"):
        assemble(given, recipe(), dispatched=["r0", "r1"], current=["m-1"])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(BatchRefused, match="allowed: a finite number"):
        made(*rewarded(1.0, value))


def test_shuffled_rewards_are_the_same_rewards_with_their_ids_elsewhere() -> None:
    rolled = tuple(Rolled(float(n), group=f"g{n // 4}") for n in range(8))
    plain, again, moved = made(*rolled), made(*rolled, by=recipe(shuffle_seed=1)), made(*rolled, by=recipe(shuffle_seed=1))
    assert moved.round.reward.value_R == again.round.reward.value_R != plain.round.reward.value_R
    assert sorted(map(float, (v or 0.0 for v in moved.round.reward.value_R))) == list(map(float, range(8)))
    assert [f"w-r{int(value or 0)}" for value in moved.round.reward.value_R] == list(moved.round.reward_id_R)
    assert moved.counters["shuffled_rewards"] == 8 and "shuffled_rewards" not in plain.counters


def test_each_group_is_in_one_optimiser_step_and_each_step_is_weighed_as_one_update() -> None:
    rolled = [Rolled(float(n % 2), group=f"g{n // 2}", steps=(n + 1,)) for n in range(8)]
    batch = made(*rolled, by=recipe(updates=3, weighting="token_mean"))
    parts = batch.parts()
    groups = [{rolled[int(name[1:])].group for name in part.rollout_id_Q} for part in parts]
    assert [len(found) for found in groups] == [2, 1, 1] and len(set().union(*groups)) == 4
    assert [float(part.terms[0].weight_T.sum()) for part in parts] == pytest.approx([1.0, 1.0, 1.0])
    assert sum(len(part.id_T) for part in parts) == len(batch.adv_T)


def test_steps_without_rollouts_are_counted() -> None:
    assert made(*rewarded(1.0, 0.0), by=recipe(updates=2)).counters["optimiser_steps_without_rollouts"] == 1


def test_rows_tell_advantages_and_weights_and_columns_do_where_they_cannot() -> None:
    rolled = [Rolled(float(n), steps=(2, 3), cuts=(1,), group="g") for n in range(2)]
    assert columns(made(*rolled)) is None
    given = judged(*rolled)
    batch = made(*rolled)
    uneven = replace(batch, adv_T=batch.adv_T * np.arange(len(batch.adv_T)))
    assert given.view.rollouts == 2 and columns(uneven) is not None


def test_all_weights_of_the_rows_are_the_weights_of_the_loss() -> None:
    batch = made(*[Rolled(float(n % 3), steps=(2, 3), cuts=(1,) if n % 2 else (), group=f"g{n // 3}") for n in range(6)])
    rows, _ = batch_rows(batch)
    assert sum(row.weight for found in rows for row in found.rows) == pytest.approx(1.0)
    assert sum(row.trained for found in rows for row in found.rows) == int(sum(part.terms[0].mask_T.sum() for part in batch.parts()))


def test_a8_a_batch_with_attributed_failures_has_the_gradient_of_the_batch_without_them() -> None:
    good = [*rewarded(1.0, 0.0, 1.0), Rolled(0.0, steps=(3,))]
    bad = [Rolled(0.0, outcome="env_failed", rollout_id=f"x{n}", steps=(2,)) for n in range(3)]
    alone, mixed = made(*good), made(*good, *bad)
    inside_T = mixed.round.view.rollout_T < len(good)
    # The gradient is a sum over tokens of weight times advantage; all of it must stay and nothing be added.
    assert np.array_equal((mixed.weight_T * mixed.adv_T)[inside_T], alone.weight_T * alone.adv_T)
    assert not (mixed.weight_T * mixed.adv_T)[~inside_T].any() and not mixed.weight_T[~inside_T].any()
    assert mixed.counters["masked:env_failed"] == 3


def test_a2_a_round_of_which_too_much_is_no_evidence_aborts_before_the_update() -> None:
    # 7 of 8 rollouts failed in their reset; the eighth must not become the whole batch.
    rolled = [*rewarded(1.0), *(Rolled(None, outcome="env_failed") for _ in range(7))]
    assert advantage_R(made(*rolled)) == [0.0]
    with pytest.raises(BatchRefused, match=r"7 of 8 .*7 env_failed.* 0\.875; allowed: up to max_mask_fraction = 0\.5"):
        made(*rolled, by=recipe(max_mask_fraction=0.5))
    assert made(*rolled, by=recipe(max_mask_fraction=0.875)).counters["masked:env_failed"] == 7
