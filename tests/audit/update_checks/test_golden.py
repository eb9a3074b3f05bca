"""The golden fixtures of the reports: right values pass, each reported wrong value is found by the check that names its cause."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from audit.update_audit import audited
from audit.update_checks._estimates import estimated, truth
from audit.update_subject import UpdateSubject
from tests.update_subjects import POLICY, Tells, check, status, subject_of
from tests.view_builder import Rolled, rewarded

ESTIMATORS = [
    ("group_mean", {}, [0.6667, -0.3333, -0.3333], [0.5, -0.5, -0.5]),
    ("group_normalised", {"eps": 0.0}, [1.1547, -0.5774, -0.5774], [0.8660, -0.8660, -0.8660]),
    ("leave_one_out", {}, [1.0, -0.5, -0.5], [0.6667, -0.6667, -0.6667]),
]


def exact(subject: UpdateSubject) -> list[float]:
    """The right values to all digits."""
    found = estimated(subject, truth(subject))
    assert found is not None
    return list(found.values())


@pytest.mark.parametrize(("estimator", "params", "right", "wrong"), ESTIMATORS)
def test_b1_f1_a_masked_row_does_not_vote(estimator: str, params: dict[str, Any], right: list[float], wrong: list[float]) -> None:
    rolled = rewarded(1.0, 1.0, 0.0, 0.0)
    left = {"r1": "env_failed"}
    rolled = (rolled[0], replace(rolled[1], outcome="env_failed"), *rolled[2:])

    def told(values: list[float]) -> UpdateSubject:
        return subject_of(rolled, Tells([values[0], None, *values[1:]], estimator, params, left_out=left))

    found = exact(told(right))
    assert found == pytest.approx(right, abs=5e-5)
    good = audited(told(found), POLICY)
    assert not good.findings and good.results["adv_recompute"].status == good.results["masked_row_votes"].status == "pass"
    # The wrong values are those of all four voting, to all digits.
    all_four = subject_of(rewarded(1.0, 1.0, 0.0, 0.0), Tells([0.0] * 4, estimator, params))
    over_four = [value for n, value in enumerate(exact(all_four)) if n != 1]
    assert over_four == pytest.approx(wrong, abs=5e-5)
    bad = audited(told(over_four), POLICY)
    root = next(one for one in bad.findings if one.root is None)
    assert (root.check, root.fault, root.boundary) == ("masked_row_votes", "masked_row_votes", "training")
    assert [one.root for one in bad.findings if one.check == "adv_recompute"] == [root]


@pytest.mark.parametrize(
    ("estimator", "params", "right", "wrong"),
    [("group_mean", {}, [-1.0, 1.0, 0.0], [-0.5, 1.5, 0.5]), ("group_normalised", {"eps": 0.0}, [-1.0, 1.0, 0.0], [-0.3873, 1.1619, 0.3873])],
)  # fmt: skip
def test_b2_f2_a_failed_judge_is_no_zero(estimator: str, params: dict[str, Any], right: list[float], wrong: list[float]) -> None:
    rolled = (*rewarded(1.0, 3.0, 2.0), Rolled(reward=None, outcome="verifier_failed"))
    placeholder = exact(subject_of(rewarded(1.0, 3.0, 2.0, 0.0), Tells([0.0] * 4, estimator, params)))[:3]
    assert placeholder == pytest.approx(wrong, abs=5e-5)
    for values, verdict in ((right, "pass"), (placeholder, "fail")):
        subject = subject_of(rolled, Tells([*values, None], estimator, params, left_out={"r3": "verifier_failed"}))
        assert status("adv_recompute", subject) == status("masked_row_votes", subject) == verdict
    assert check("masked_row_votes", subject).fault == "masked_row_votes"


def test_b4_f3_a_rollout_of_three_rows_votes_once() -> None:
    rolled = (Rolled(reward=1.0, steps=(1, 1, 1), cuts=(1, 2)), Rolled(reward=0.0))
    good, bad = (subject_of(rolled, Tells(values)) for values in ([0.5, -0.5], [0.25, -0.75]))
    assert status("group_by_rollout", good) == status("adv_recompute", good) == "pass"
    findings = audited(bad, POLICY).findings
    assert [(one.check, one.fault) for one in findings if one.root is None] == [("group_by_rollout", "slice_double_counted")]
    assert "adv_recompute" in {one.check for one in findings if one.root is not None}


def test_b4_f3_siblings_of_one_rollout_share_one_reward() -> None:
    subject = subject_of(rewarded(2.0, 1.0), Tells([0.5, -0.5]))
    ((event_id, batch),) = subject.assembled
    twice = batch.rows[0].model_copy(update={"reward_id": "w-other", "reward": 6.0, "votes": False})
    bad = replace(subject, assembled=((event_id, batch.model_copy(update={"rows": [*batch.rows, twice]})),))
    found = check("group_by_rollout", bad)
    assert found.status == "fail" and "[2.0, 6.0]" in found.reason and status("group_by_rollout", subject) == "pass"


@pytest.mark.parametrize(("singleton", "right", "other"), [("zero", 0.0, 1.0), ("reward", 1.0, 0.0)])
def test_b7_f6_the_only_voter_follows_the_declared_convention(singleton: str, right: float, other: float) -> None:
    rolled = (replace(rewarded(100.0)[0], outcome="env_failed"), rewarded(1.0)[0])

    def told(value: float) -> UpdateSubject:
        return subject_of(rolled, Tells([None, value], params={"singleton": singleton}, left_out={"r0": "env_failed"}))

    assert status("singleton_convention", told(right)) == status("adv_recompute", told(right)) == "pass"
    assert status("singleton_convention", told(other)) == "fail" and status("masked_row_votes", told(other)) == "pass"
    # The sibling that was rejected votes with its 100.
    voted = audited(told(-49.5), POLICY)
    assert [one.check for one in voted.findings if one.root is None] == ["masked_row_votes"]
    assert {one.check for one in voted.findings} >= {"singleton_convention", "adv_recompute"}


@pytest.mark.parametrize("renamed", [True, False])
def test_b10_f7_a_group_holds_one_task(renamed: bool) -> None:
    rolled = [Rolled(reward=value, group=group) for value, group in ((1.0, "p1"), (0.0, "p2"), (1.0, "p1"), (0.0, "p2"))]
    groups = {"r0": "x", "r1": "x", "r2": "y", "r3": "y"} if renamed else {}
    good, bad = subject_of(rolled, Tells([0.0] * 4)), subject_of(rolled, Tells([0.5, -0.5, 0.5, -0.5], groups=groups))
    assert status("group_one_task", good) == status("adv_recompute", good) == "pass"
    findings = audited(bad, POLICY).findings
    blamed = [(one.check, one.fault) for one in findings if one.root is None and one.level == "error"]
    assert blamed == [("group_one_task", "wrong_population")]


def test_f9_a_kept_mass_shows_as_one_constant() -> None:
    rolled = [replace(one, steps=(6,)) for one in rewarded(1.0, 0.0)]
    engine = subject_of(rolled, Tells([0.5, -0.5])).view
    assert engine is not None
    raw = {"proximal": engine.behaviour_logprob_T + np.log(0.9)}
    cut, plain = (subject_of(rolled, Tells([0.5, -0.5], columns=columns)) for columns in (raw, {"proximal": engine.behaviour_logprob_T}))
    found = check("kept_mass_ratio", cut)
    assert found.status == "fail" and found.measured["median"] == pytest.approx(0.9) and status("kept_mass_ratio", plain) == "pass"
    roots = [one.check for one in audited(cut, POLICY).findings if one.root is None]
    assert roots == ["kept_mass_ratio"]
    rng = np.random.default_rng(0)
    stale = {"proximal": engine.behaviour_logprob_T + rng.normal(-2, 2, len(engine.id_T))}
    assert status("kept_mass_ratio", subject_of(rolled, Tells([0.5, -0.5], columns=stale))) == "pass"
