"""Each update check passes what is right, finds the fault that it is named after, and skips with a reason what it has no data for."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from audit.findings import roots
from audit.run import check_ids, explains
from audit.taxonomy import FAULTS
from audit.update_audit import audited, bound_checks
from audit.update_subject import UpdateSubject
from ledger.events import BatchAssembled, BatchRow, EngineRefreshed, LossWeight, UpdateApplied
from tests.update_subjects import POLICY, Tells, check, status, subject_of
from tests.view_builder import Rolled, rewarded

RIGHT = [0.5, -0.5]
PAIR = (Rolled(reward=1.0, steps=(2, 3), cuts=(1,)), Rolled(reward=0.0, steps=(4,)))


def good(**tells: Any) -> UpdateSubject:
    return subject_of(PAIR, Tells(RIGHT, **tells))


def retold(subject: UpdateSubject, n: int, **changed: Any) -> UpdateSubject:
    """The subject with one row of its batch told otherwise."""
    ((event_id, batch),) = subject.assembled
    rows = [row.model_copy(update=changed) if place == n else row for place, row in enumerate(batch.rows)]
    return replace(subject, assembled=((event_id, batch.model_copy(update={"rows": rows})),))


def counted(subject: UpdateSubject, **counters: float) -> UpdateSubject:
    ((event_id, update),) = subject.applied
    return replace(subject, applied=((event_id, update.model_copy(update={"counters": counters})),))


def test_what_is_right_is_found_faultless_and_every_check_has_a_severity() -> None:
    done = audited(good(), POLICY)
    assert {one.status for one in done.results.values()} <= {"pass", "skip"} and done.findings == ()
    assert set(done.results) == set(POLICY.severity)
    assert {name for bound in bound_checks() for name in check_ids(bound)} == set(POLICY.severity)


def test_every_explained_check_exists() -> None:
    for bound in bound_checks():
        assert set(getattr(bound.call, "explains", ())) <= set(POLICY.severity), bound.ref.name


def test_a_root_explains_through_others_and_circles_have_one() -> None:
    told = {name: explains(bound) for bound in bound_checks() for name in check_ids(bound)}
    assert roots(["weight_shares", "adv_recompute", "masked_row_votes"], told) == {
        "weight_shares": "masked_row_votes", "adv_recompute": "masked_row_votes", "masked_row_votes": "masked_row_votes",
    }  # fmt: skip
    assert roots(["length_bias", "zero_variance_saturation"], told) == {one: one for one in ("length_bias", "zero_variance_saturation")}


def test_what_others_recorded_is_skipped_with_the_reason_and_never_passed() -> None:
    batch = BatchAssembled(batch_id="b", run_id="run", round=1, rows=[BatchRow(rollout_id="r", reward_id="w", votes=True, trains=True)])
    update = UpdateApplied(
        update_id="u", batch_id="b", run_id="run", step=0, model_version_before="m0", model_version_after="m1",
        weights=[LossWeight(rollout_id="r", reward_id="w", weight=1.0)],
    )  # fmt: skip
    done = audited(UpdateSubject("u", (("e1", update),), (("e0", batch),), missing=("r",)), POLICY)
    skipped = {name: one.reason for name, one in done.results.items() if one.status == "skip"}
    assert skipped.keys() >= {
        "adv_recompute",
        "mask_eq_sampled",
        "weight_mode_declared",
        "reward_rollout_id_join",
        "lag_max",
        "weight_shares",
    }
    assert all(skipped.values()) and skipped["reward_rollout_id_join"] == "none of the 1 rewards that the batch names is here"
    # A rollout that no stream here has is a phantom, which is known without any token.
    assert [one.check for one in done.findings] == ["phantom_group"]


def test_a2_env_failure_rate_alarms_when_seven_of_eight_failed_in_reset() -> None:
    rolled = [Rolled(reward=1.0, outcome="succeeded"), *(Rolled(reward=0.0, outcome="env_failed", steps=()) for _ in range(7))]
    left = {f"r{n}": "env_failed" for n in range(1, 8)}
    subject = subject_of(rolled, Tells([0.0, *[None] * 7], left_out=left))
    found = check("env_failure_rate", subject)
    assert found.status == "fail" and found.measured["share"] == 7 / 8 and FAULTS[str(found.fault)] == "environment"
    assert status("env_failure_rate", good()) == "pass" and status("masked_row_votes", subject) == "pass"
    # As zeros they lower the baseline: the survivor's advantage is 0.875 instead of 0.
    zeros = subject_of(rolled, Tells([0.875, *[-0.125] * 7]))
    assert [one.check for one in audited(zeros, POLICY).findings if one.root is None] == ["env_failure_rate", "failed_attempt_trained"]


def test_a2_env_failure_rate_alarms_on_a_jump_below_the_ceiling() -> None:
    rolled = [*rewarded(*[1.0] * 12), *(Rolled(reward=None, outcome="env_failed") for _ in range(4))]
    subject = subject_of(rolled, Tells([0.0] * 12 + [None] * 4, left_out={f"r{n}": "env_failed" for n in range(12, 16)}))
    assert status("env_failure_rate", subject) == "pass"
    assert status("env_failure_rate", replace(subject, past_failed=(0.0, 0.01))) == "fail"


def test_a8_failed_attempt_trained() -> None:
    rolled = (PAIR[0], replace(PAIR[1], outcome="env_failed"))
    found = check("failed_attempt_trained", subject_of(rolled, Tells(RIGHT)))
    assert found.status == "fail" and "end-r1" in found.evidence_event_ids and status("failed_attempt_trained", good()) == "pass"


def test_b3_masked_row_votes_names_a_voter_that_is_no_evidence() -> None:
    rolled = (PAIR[0], replace(PAIR[1], outcome="env_failed"))
    assert status("masked_row_votes", subject_of(rolled, Tells(RIGHT))) == "fail" and status("masked_row_votes", good()) == "pass"
    limited = (PAIR[0], replace(PAIR[1], ended_by="token_limit", outcome="limit_ended"))
    assert status("masked_row_votes", subject_of(limited, Tells(RIGHT))) == "pass"
    assert status("masked_row_votes", subject_of(limited, Tells(RIGHT, stage={"truncated": "exclude"}))) == "fail"


def test_b9_reward_none_coerced() -> None:
    rolled = (PAIR[0], replace(PAIR[1], reward=None))
    found = check("reward_none_coerced", subject_of(rolled, Tells(RIGHT, values={"r1": 0.0})))
    assert (found.status, found.fault) == ("fail", "reward_coerced") and status("reward_none_coerced", good()) == "pass"


def test_b9_nan_adv_in_columns_and_in_a_step_that_was_nothing() -> None:
    view = good().view
    assert view is not None
    columns = {"adv_T": np.where(view.mask_T, np.nan, 0.0)}
    assert status("nan_adv", good(columns=columns)) == "fail" and status("nan_adv", good(columns={})) == "pass"
    assert status("nan_adv", counted(good(), loss=0.0, grad_norm=0.0)) == "fail"
    assert status("nan_adv", counted(good(), loss=0.0, grad_norm=0.1)) == "pass"


def test_b12_reward_rollout_id_join() -> None:
    swapped = subject_of(PAIR, Tells([-0.5, 0.5], rewards={"r0": "r1", "r1": "r0"}))
    done = audited(swapped, POLICY)
    assert [one.check for one in done.findings if one.root is None] == ["reward_rollout_id_join"]
    assert {"adv_recompute"} == {one.check for one in done.findings if one.root is not None}
    assert {"reward-event-r0", "reward-event-r1"} <= set(done.findings[0].evidence_event_ids)
    assert status("reward_rollout_id_join", good(values={"r0": 0.75})) == "fail" and status("reward_rollout_id_join", good()) == "pass"
    control = subject_of(PAIR, Tells([-0.5, 0.5], rewards={"r0": "r1", "r1": "r0"}, stage={"shuffled_rewards": True}))
    assert status("reward_rollout_id_join", control) == "skip" and status("adv_recompute", control) == "pass"


def test_b13_denominator_eq_mask_sum() -> None:
    subject = good(weighting="token_mean")
    mask = 9
    assert status("denominator_eq_mask_sum", counted(subject, tokens=mask)) == "pass"
    assert status("denominator_eq_mask_sum", counted(subject, tokens=mask + 3)) == "fail"
    ((event_id, update),) = subject.applied
    weights = [one.model_copy(update={"weight": one.weight * mask / 12}) for one in update.weights]
    done = audited(replace(subject, applied=((event_id, update.model_copy(update={"weights": weights})),)), POLICY)
    assert [one.check for one in done.findings if one.root is None] == ["denominator_eq_mask_sum"]


def test_aud12_weight_mode_declared() -> None:
    subject = good(weighting="token_mean")
    assert status("weight_mode_declared", subject) == "pass"
    other = replace(subject, declared=good(weighting="rollout_token_mean").declared)
    assert status("weight_mode_declared", other) == "fail" and status("denominator_eq_mask_sum", other) == "pass"


def test_slice_invariance_holds_for_weightings_that_declare_it_and_is_not_asked_of_others() -> None:
    assert status("slice_invariance", good(weighting="token_mean")) == status("slice_invariance", good(weighting="constant")) == "pass"
    assert "no weighting declares it: row_mean" in check("slice_invariance", good(weighting="row_mean")).reason
    found = check("slice_invariance", subject_of((Rolled(reward=1.0, steps=(2, 3)), PAIR[1]), Tells(RIGHT)))
    assert (found.measured["rows"], found.measured["rows_when_cut"]) == (2, 3)


def test_slice_invariance_finds_a_weighting_that_declares_what_does_not_hold() -> None:
    subject = subject_of((Rolled(reward=1.0, steps=(2, 3)), PAIR[1]), Tells(RIGHT, weighting="row_mean"))
    (term,) = subject.declared.terms
    by_row = term.weighting.call

    def liar(view: Any, trains_R: Any, mask_T: Any) -> Any:
        return by_row(view, trains_R, mask_T)

    liar.__dict__["slice_invariant"] = True
    lying = replace(term, weighting=replace(term.weighting, call=liar))
    assert status("slice_invariance", replace(subject, declared=replace(subject.declared, terms=(lying,)))) == "fail"


def test_weight_shares_add_up_and_are_those_of_weight_and_advantage() -> None:
    subject = good()
    ((event_id, update),) = subject.applied
    for shares in ((0.5, 0.6), (0.7, 0.3)):
        weights = [one.model_copy(update={"share": share}) for one, share in zip(update.weights, shares, strict=True)]
        assert status("weight_shares", replace(subject, applied=((event_id, update.model_copy(update={"weights": weights})),))) == "fail"
    assert status("weight_shares", subject) == "pass"


def test_b16_zero_variance_saturation_is_a_remark_that_blames_nobody() -> None:
    done = audited(subject_of(rewarded(1.0, 1.0), Tells([0.0, 0.0])), POLICY)
    assert [(one.check, one.level, one.boundary) for one in done.findings] == [
        ("zero_variance_saturation", "info", None)
    ] and not done.fails


def test_d1_d2_mask_eq_sampled_by_columns_and_by_counts() -> None:
    view = good().view
    assert view is not None
    inverted = good(columns={"weight_T": np.where(view.mask_T, 0.0, 0.25), "adv_T": np.where(view.mask_T, 0.0, 0.5)})
    done = audited(inverted, POLICY)
    assert [(one.check, one.fault) for one in done.findings if one.root is None] == [("mask_eq_sampled", "inverted_mask")]
    assert "reward_on_masked_token" in {one.check for one in done.findings}
    ignored = good(columns={"weight_T": np.full(len(view.id_T), 0.1)})
    assert check("mask_eq_sampled", ignored).status == "fail" and status("mask_eq_sampled", good(columns={})) == "pass"


def test_reward_on_masked_token_of_a_rollout_whose_credit_lies_elsewhere() -> None:
    view = good().view
    assert view is not None
    shifted = np.where(view.mask_T, 0.0, 0.5)
    assert status("reward_on_masked_token", good(columns={"adv_T": shifted})) == "fail"
    assert status("reward_on_masked_token", good(columns={})) == "pass"


def test_d4_masks_consistent() -> None:
    subject = good()
    ((event_id, update),) = subject.applied
    fewer = replace(subject, applied=((event_id, update.model_copy(update={"weights": update.weights[:1]})),))
    assert (check("masks_consistent", fewer).fault, status("masks_consistent", subject)) == ("masks_differ", "pass")
    assert status("masks_consistent", retold(subject, 1, trains=False, advantage=None)) == "fail"


def test_token_trained_once_finds_a_row_in_the_batch_twice() -> None:
    subject = good()
    twice = replace(subject, rows=(*subject.rows, subject.rows[0]))
    assert (check("token_trained_once", twice).fault, status("token_trained_once", subject)) == ("slice_double_counted", "pass")


def test_e3_e4_engine_against_trainer_logprobs() -> None:
    def refreshed(gap: float, *, reset: bool = True) -> UpdateSubject:
        body = EngineRefreshed(engine_id="e", model_version="m-1", cache_reset=reset, probe_gap=gap, refresh=0)
        return replace(good(), refreshes=(("refresh-event", body),))

    name = "engine_against_trainer_logprobs"
    assert [status(name, refreshed(1e-5)), status(name, refreshed(0.5)), status(name, refreshed(1e-5, reset=False))] == [
        "pass",
        "fail",
        "fail",
    ]
    assert check(name, refreshed(0.5)).evidence_event_ids[0] == "refresh-event" and status(name, good()) == "skip"
    view = good().view
    assert view is not None
    near, far = (good(columns={"proximal": view.behaviour_logprob_T + gap}) for gap in (1e-4, -2.0))
    assert [status(name, near), status(name, far)] == ["pass", "fail"] and check(name, far).fault == "stale_cache"
    filled = good(columns={"behaviour": np.where(view.mask_T, 0.0, np.nan)})
    assert check(name, filled).fault == "logprobs_filled" and status(name, good(columns={"behaviour": view.behaviour_logprob_T})) == "skip"


def test_e4_mismatch_kl_step_alarms_on_a_jump_after_a_resume() -> None:
    def step(gap: float, *before: float) -> UpdateSubject:
        subject = counted(good(), gap_mean=gap, optimiser_steps=4)
        ((_, update),) = subject.applied
        return replace(subject, past=tuple(update.model_copy(update={"counters": {"gap_mean": one}}) for one in before))

    usual = (0.01, 0.012, 0.009)
    assert status("mismatch_kl_step", step(0.02, *usual)) == "pass" and status("mismatch_kl_step", step(0.15, *usual)) == "fail"
    assert status("mismatch_kl_step", step(0.15)) == "pass" and status("mismatch_kl_step", step(2.0)) == "fail"


def test_f2_lag_max_by_the_oldest_version_and_unknown_is_older_than_any() -> None:
    def lagged(*lags: float, stage: dict[str, Any] | None = None) -> UpdateSubject:
        subject = good(stage=stage or {})
        assert subject.view is not None
        return replace(subject, view=replace(subject.view, lag_S=np.array(lags)))

    assert status("lag_max", lagged(0, 0, 0)) == "pass" and status("lag_max", lagged(2, 0, 0)) == "fail"
    assert check("lag_max", lagged(0, np.nan, 0)).status == "fail"
    allowed = {"filters": [{"name": "stale", "params": {"max_lag": 2}}]}
    assert status("lag_max", lagged(2, 0, 0, stage=allowed)) == "pass" and status("lag_max", lagged(3, 0, 0, stage=allowed)) == "fail"
    # AUD-16: one member of the group is two updates older than the other.
    assert status("version_spread_in_group", lagged(2, 0, 0)) == "fail" and status("version_spread_in_group", lagged(2, 2, 2)) == "pass"


def test_f3_length_bias_of_what_was_dropped() -> None:
    rolled = [Rolled(reward=float(n % 2), steps=(5 + n % 3,)) for n in range(20)]
    longer = [Rolled(reward=None, steps=(50 + n,), outcome="env_failed") for n in range(5)]
    alike = [replace(one, steps=(5 + n % 3,)) for n, one in enumerate(longer)]

    def told(dropped: list[Rolled]) -> UpdateSubject:
        names = {f"r{n}": "env_failed" for n in range(20, 25)}
        return subject_of([*rolled, *dropped], Tells([0.0] * 20 + [None] * 5, left_out=names))

    found = check("length_bias", told(longer))
    assert found.status == "fail" and found.measured["ratio"] < 0.5 and status("length_bias", told(alike)) == "pass"


def test_g1_g3_dispatch_consume_ledger_names_what_was_lost() -> None:
    subject = good()
    (slots,) = subject.slots
    lost = replace(subject, slots=(replace(slots, rollout_ids=(*slots.rollout_ids, None)),))
    assert "no counted attempt" in check("dispatch_consume_ledger", lost).reason and status("dispatch_consume_ledger", subject) == "pass"
    known = {**subject.known, "late": replace(subject.known["r0"], rollout_id="late")}
    never = replace(subject, known=known, slots=(replace(slots, rollout_ids=(*slots.rollout_ids, "late")),))
    assert "in no batch of the run" in check("dispatch_consume_ledger", never).reason
    later = replace(never, consumed={"late": ["u2"]})
    assert status("dispatch_consume_ledger", later) == "pass"


def test_g6_dispatch_consume_ledger_finds_data_that_is_trained_again() -> None:
    assert "also in update u0" in check("dispatch_consume_ledger", replace(good(), consumed={"r0": ["u0"]})).reason


def test_dispatch_consume_ledger_does_not_believe_a_reason_that_the_ledger_contradicts() -> None:
    subject = subject_of((*PAIR, Rolled(reward=1.0, outcome="succeeded")), Tells([*RIGHT, None], left_out={"r2": "env_failed"}))
    assert "left_out_as env_failed, outcome succeeded" in check("dispatch_consume_ledger", subject).reason


def test_k1_train_eval_harness_equal() -> None:
    def harnesses(train: str, test: str) -> UpdateSubject:
        return replace(good(), harnesses={"train": {"desk": frozenset({train})}, "test": {"desk": frozenset({test})}})

    name = "train_eval_harness_equal"
    assert [status(name, harnesses("h", "h")), status(name, harnesses("h", "compacts")), status(name, good())] == ["pass", "fail", "skip"]


def test_phantom_group() -> None:
    assert status("phantom_group", good()) == "pass" and status("phantom_group", good(groups={"r0": "padding"})) == "fail"
    subject = good()
    foreign = {**subject.known, "r0": replace(subject.known["r0"], run_id="another")}
    assert "dispatched for run another" in check("phantom_group", replace(subject, known=foreign)).reason


def test_aud25_aud40_baseline_shared_between_kinds() -> None:
    rolled = [Rolled(reward=1.0), Rolled(reward=0.0), Rolled(reward=0.0, kind="recovery"), Rolled(reward=0.0, kind="recovery")]
    apart, shared = subject_of(rolled, Tells([0.5, -0.5, 0.0, 0.0])), subject_of(rolled, Tells([0.75, -0.25, -0.25, -0.25]))
    assert status("baseline_shared_between_kinds", apart) == "pass"
    assert [one.check for one in audited(shared, POLICY).findings if one.root is None] == ["baseline_shared_between_kinds"]


def test_aud37_fallback_share_is_a_remark() -> None:
    found = check("fallback_share", retold(good(), 0, path="fallback:singleton"))
    assert (found.status, found.fault, found.measured["share"]) == ("fail", None, 0.5) and status("fallback_share", good()) == "pass"


def test_aud14_row_reason_other_share() -> None:
    subject = good()
    other = replace(subject.rows[0], told=subject.rows[0].told.model_copy(update={"open_reason": "other"}))
    assert status("row_reason_other_share", replace(subject, rows=(other, *subject.rows[1:]))) == "fail"
    assert status("row_reason_other_share", subject) == "pass"


@pytest.mark.parametrize("name", sorted({"failed_attempt_trained", "mask_eq_sampled", "reward_rollout_id_join"}))
def test_a_failure_names_the_events_of_batch_and_update(name: str) -> None:
    bad = subject_of((PAIR[0], replace(PAIR[1], outcome="env_failed")), Tells([-0.5, 0.5], rewards={"r0": "r1", "r1": "r0"}))
    view = bad.view
    assert view is not None
    rows = tuple(replace(row, told=row.told.model_copy(update={"trained": 1})) for row in bad.rows)
    assert {"batch-event", "update-event"} <= set(check(name, replace(bad, rows=rows)).evidence_event_ids)
