"""Numbers of reported defects, recomputed: each fixture's right value, and that its wrong one does not come out."""

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, reward_of, rewarded, view_of, votes_of
from training.advantages import Advantages, advantages
from training.diagnostics import UpdateColumns, diagnostics
from training.weightings import weightings


def estimate(name: str, *rolled: Rolled, votes: tuple[bool, ...] | None = None, **params: object) -> Advantages:
    votes_R = votes_of(*rolled) if votes is None else np.array(votes)
    return advantages.bind(name, **params).call(view_of(*rolled), reward_of(*rolled), votes_R, {})


ONE = Rolled(1.0, (3,), context=0)


def columns(**logprobs: np.ndarray) -> UpdateColumns:
    return UpdateColumns(np.zeros(3), np.ones(3), logprobs)


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("group_mean", (0.6667, 0.0, -0.3333, -0.3333)),
        ("group_normalised", (1.1547, 0.0, -0.5774, -0.5774)),
        ("leave_one_out", (1.0, 0.0, -0.5, -0.5)),
    ],
)
def test_f1_a_masked_rollout_does_not_vote(name: str, right: tuple[float, ...]) -> None:
    told = estimate(name, *rewarded(1, 1, 0, 0), votes=(True, False, True, True))
    assert told.advantage_R == pytest.approx(right, abs=1e-4)


@pytest.mark.parametrize("name", ["group_mean", "group_normalised"])
def test_f2_a_judges_failure_is_no_zero(name: str) -> None:
    told = estimate(name, *rewarded(1, 3, 2, None))
    assert told.advantage_R == pytest.approx((-1.0, 1.0, 0.0, 0.0), abs=1e-5)
    assert told.path_R[3] == "fallback:no_reward"


def test_f3_three_rows_of_one_rollout_count_once() -> None:
    fan = (Rolled(1.0, (1, 1, 1), cuts=(1, 2)), Rolled(0.0, (1,)))
    view = view_of(*fan)
    told = estimate("group_mean", *fan)
    assert told.adv_T[view.mask_T].tolist() == [0.5, 0.5, 0.5, -0.5]


@pytest.mark.parametrize("name", advantages.names())
def test_f3_siblings_with_different_rewards_are_an_error(name: str) -> None:
    with pytest.raises(MethodError, match="rollout a stands twice with rewards 2.0 and 6.0"):
        estimate(name, Rolled(2.0, rollout_id="a"), Rolled(6.0, rollout_id="a"), Rolled(0.0, rollout_id="b"))


@pytest.mark.parametrize("name", ["group_mean", "group_normalised", "leave_one_out", "state_group"])
def test_f4_turns_of_one_rollout_are_not_independent(name: str) -> None:
    many, one = (Rolled(1.0, (1,) * 9, cuts=tuple(range(1, 9))), Rolled(0.0)), (Rolled(1.0, (1,)), Rolled(0.0))
    told, alone = estimate(name, *many), estimate(name, *one)
    assert told.adv_T[view_of(*many).mask_T].tolist() == pytest.approx([alone.adv_T[1]] * 9 + [alone.adv_T[3]])


def test_f6_a_single_voter_follows_the_declared_convention() -> None:
    siblings, votes = rewarded(100.0, 1.0), (False, True)
    verl = estimate("group_mean", *siblings, votes=votes, singleton="reward")
    nemo = estimate("group_mean", *siblings, votes=votes)
    assert (verl.advantage_R, verl.declared["singleton"]) == ((0.0, 1.0), "reward")
    assert (nemo.advantage_R, nemo.declared["singleton"]) == ((0.0, 0.0), "zero")
    assert estimate("group_normalised", *siblings, votes=votes, singleton="reward").advantage_R == (0.0, 1.0)


@pytest.mark.parametrize("name", ["group_mean", "group_normalised", "leave_one_out", "state_group"])
def test_f7_groups_are_joined_by_id_and_not_by_place(name: str) -> None:
    rolled = [Rolled(reward, group=group) for reward, group in ((1.0, "p1"), (0.0, "p2"), (1.0, "p1"), (0.0, "p2"))]
    assert estimate(name, *rolled).adv_T.tolist() == [0.0] * 8


@pytest.mark.parametrize(("succeeded", "failed", "errors", "right"), [(80, 10, 10, 0.8889), (2, 4, 2, 0.3333)])
def test_f8_errors_are_not_failures(succeeded: int, failed: int, errors: int, right: float) -> None:
    outcomes = ["succeeded"] * succeeded + ["task_failed"] * failed + ["verifier_failed"] * errors
    rolled = [Rolled(outcome=outcome) for outcome in outcomes]
    nothing = np.zeros(2 * len(rolled))
    told = diagnostics["success_rate"](view_of(*rolled), reward_of(*rolled), UpdateColumns(nothing, nothing))
    assert told["success_rate"].value == pytest.approx(right, abs=1e-4)


@pytest.mark.parametrize("kept", [0.9, 0.5])
def test_f9_truncated_sampling_shows_as_the_kept_mass(kept: float) -> None:
    rolled = (Rolled(1.0, (3,), context=0),)
    engine = np.log(np.array([0.5, 0.2, 0.2]) / kept)
    update = UpdateColumns(np.zeros(3), np.zeros(3), {"behaviour": engine, "proximal": np.log([0.5, 0.2, 0.2])})
    told = diagnostics["kept_mass_ratio"](view_of(*rolled), reward_of(*rolled), update)
    assert (told["min"].value, told["max"].value) == pytest.approx((kept, kept))


@pytest.mark.parametrize("name", advantages.names())
def test_b3_what_timed_out_pushes_no_sibling_up(name: str) -> None:
    params = {"whiten": False} if name == "step_gae" else {}
    group = (*rewarded(1.0, 0.0), Rolled(0.0, outcome="env_failed"))
    told, without = estimate(name, *group, votes=(True, True, False), **params), estimate(name, *group[:2], **params)
    assert told.adv_T.tolist() == [*without.adv_T.tolist(), 0.0, 0.0]


@pytest.mark.parametrize("name", advantages.names())
def test_b9_an_unscorable_rollout_has_no_advantage_and_poisons_nothing(name: str) -> None:
    told = estimate(name, *rewarded(1.0, None, 0.0))
    assert np.isfinite(told.adv_T).all()
    assert (told.adv_T[3], told.path_R[1], told.counters["fallback:no_reward"]) == (0.0, "fallback:no_reward", 1)
    with pytest.raises(MethodError, match="reward of rollout r1 is nan"):
        estimate(name, *rewarded(1.0, float("nan"), 0.0))


@pytest.mark.parametrize("name", ["token_mean", "rollout_token_mean", "row_mean"])
def test_b13_the_denominator_is_the_final_mask(name: str) -> None:
    view = view_of(Rolled(1.0, (3,)), Rolled(0.0, (5,), ended_by="turn_limit"), Rolled(0.0, (2,)))
    weight_T = weightings[name](view, np.array([True, False, True]), view.mask_T)
    assert weight_T.sum() == pytest.approx(1.0)
    assert weight_T[view.rollout_T == 1].sum() == 0.0


def test_b16_groups_without_contrast_still_carry_a_penalty_and_are_shown() -> None:
    rolled = (*rewarded(1, 1, group="a"), *rewarded(1, 0, group="b"))
    view = view_of(*rolled)
    weight_T = weightings["token_mean"](view, np.ones(4, dtype=np.bool_), view.mask_T)
    told = diagnostics["zero_variance_fraction"](view, reward_of(*rolled), UpdateColumns(np.zeros(8), weight_T))
    assert (told["populations"].value, told["weight"].value) == (0.5, 0.5)


def test_e2_logprobs_that_ignore_the_temperature_show_as_a_gap() -> None:
    logits, chosen = np.array([2.0, 0.0, -1.0]), np.array([0, 1, 0])
    raw, processed = (np.log(np.exp(scaled) / np.exp(scaled).sum())[chosen] for scaled in (logits, logits / 0.7))
    told = diagnostics["mismatch_kl"](view_of(ONE), reward_of(ONE), columns(behaviour=raw, proximal=processed))
    right = diagnostics["mismatch_kl"](view_of(ONE), reward_of(ONE), columns(behaviour=processed, proximal=processed))
    assert told["gap_max"].value == pytest.approx(float(np.abs(raw - processed).max())) and told["gap_max"].value > 0.3
    assert right["gap_max"].value == 0.0


def test_e4_weights_that_were_not_synchronised_show_as_a_divergence() -> None:
    told = diagnostics["mismatch_kl"](
        view_of(ONE), reward_of(ONE), columns(behaviour=np.log([0.9, 0.8, 0.9]), proximal=np.log([0.3, 0.2, 0.3]))
    )
    assert told["k1"].value == pytest.approx(np.log([3.0, 4.0, 3.0]).mean())
    assert told["k3"].value == pytest.approx(np.mean([1 / 3 - 1 + np.log(3), 1 / 4 - 1 + np.log(4), 1 / 3 - 1 + np.log(3)]))


def test_f3_discarding_what_is_late_trains_short_rollouts() -> None:
    rolled = (*(Rolled(1.0, (2,)) for _ in range(3)), Rolled(0.0, (10,)))
    view = view_of(*rolled)
    weight_T = weightings["token_mean"](view, np.array([True, True, True, False]), view.mask_T)
    told = diagnostics["length_bias"](view, reward_of(*rolled), UpdateColumns(np.zeros_like(weight_T), weight_T))
    assert (told["ratio"].value, told["distance"].value) == (0.5, 0.25)


SLICED = (Rolled(1.0, (10, 10, 10), cuts=(1, 2)), Rolled(0.0, (90,)))


def test_slice_baseline_of_rollouts_and_of_samples() -> None:
    by_rollout = estimate("group_mean", *SLICED)
    by_sample = np.mean([1.0, 1.0, 1.0, 0.0])
    assert [1.0 - by_rollout.advantage_R[0], by_sample] == [0.5, 0.75]


@pytest.mark.parametrize(
    ("name", "loss", "share"), [("token_mean", 0.25, 0.25), ("row_mean", -0.25, 0.75), ("rollout_token_mean", 0.0, 0.5)]
)
def test_loss_and_weight_of_rollout_a_under_each_mean(name: str, loss: float, share: float) -> None:
    view, told = view_of(*SLICED), estimate("group_mean", *SLICED)
    weight_T = weightings[name](view, np.array([True, True]), view.mask_T)
    assert -float((weight_T * told.adv_T).sum()) == pytest.approx(loss, abs=1e-12)
    assert float(weight_T[view.rollout_T == 0].sum()) == pytest.approx(share)


def test_gigpo_step_episode_and_joint_advantage() -> None:
    toy = (Rolled(1.0, (1, 1, 1, 1), states=("s0", "sA", "s0", "sB")), Rolled(0.0, (1, 1), states=("s0", "sC")))
    trained = view_of(*toy).mask_T
    joint = estimate("state_group", *toy, gamma=0.95).adv_T[trained]
    episode, across = (
        estimate("state_group", *toy, step_weight=0.0, episode_baseline=over).adv_T[trained] for over in ("rollouts", "steps")
    )
    assert joint - episode == pytest.approx([0.254917, 0.0, 0.347542, 0.0, -0.602458, 0.0], abs=1e-6)
    assert [1 - episode[0], 1 - across[0]] == pytest.approx([0.5, 0.6666666666666666])
    assert joint[0] == pytest.approx(0.754917, abs=1e-6)


def test_leave_one_out_of_two_successes_in_four() -> None:
    assert estimate("leave_one_out", *rewarded(1, 0, 0, 1)).advantage_R == pytest.approx((0.6667, -0.6667, -0.6667, 0.6667), abs=1e-4)
