import re

import pytest

from audit.bundle_checks import bundle_checks
from audit.run import check_ids
from audit.severity import load_policy, policy_names, policy_of
from audit.world_checks import world_checks
from ledger.errors import SettingsError

RFC_008 = {
    "static": "manifest reproducible_build sbom oci_labels resource_declaration timeout_ceiling dependency_pinning task_distribution_pinning image_hygiene layout",
    "runtime": "network_policy host_containment resource_bounds episode_isolation oracle_containment reward_well_formed observation_schema state_contract tool_declaration_accuracy task_declaration_accuracy seed_control episode_determinism rubric_introspectable trajectory_record reward_attribution",
    "semantic": "resource_envelope oracle_max floor_gap canary_floor no_solution_leakage verifier_determinism verifier_portability replayability",
    "statistical": "reward_reachability difficulty_separation variance_bound adversarial_floor headroom gameability_gap training_signal",
    "hub": "cross_host_determinism immutable_versioning layer_isolation time_to_first_work cosign_signature",
}
IDS = {f"{level}.{name}" for level, names in RFC_008.items() for name in names.split()}


def content() -> dict[str, object]:
    return {"name": "x", "severity": {"a.b": "fail", "a.c": "warn"}, "thresholds": {}, "required": ["a.c"], "not_run": {"a.b": "why"}}


def test_every_policy_holds_the_45_ids_of_the_rfc() -> None:
    assert len(IDS) == 45
    for name in policy_names():
        assert load_policy(name).severity.keys() >= IDS
    assert "runtime.startup" in load_policy("v2").severity.keys() - load_policy("v1").severity.keys()


def test_each_id_is_answered_by_one_check_or_says_why_not() -> None:
    checks = [family.bind(name) for family in (bundle_checks, world_checks) for name in family.names()]
    answered = [check_id for bound in checks for check_id in check_ids(bound)]
    assert len(answered) == len(set(answered))
    newest = load_policy(policy_names()[-1])
    assert set(answered) <= newest.severity.keys()
    assert newest.severity.keys() - set(answered) == newest.not_run.keys()
    assert all(re.fullmatch(r".{20,}", reason) for reason in newest.not_run.values())


def test_the_id_of_a_policy_is_over_all_that_it_says() -> None:
    one = policy_of(content())
    assert one.policy_id == policy_of(content()).policy_id
    assert one.policy_id != policy_of({**content(), "thresholds": {"x": 1}}).policy_id
    assert one.policy_id != policy_of({**content(), "severity": {"a.b": "warn", "a.c": "warn"}}).policy_id


def test_a_failure_blocks_by_severity_and_a_skip_only_where_the_id_is_required() -> None:
    policy = policy_of(content())
    assert [policy.blocks("a.b", status) for status in ("pass", "fail", "error", "skip")] == [False, True, True, False]
    assert [policy.blocks("a.c", status) for status in ("pass", "fail", "error", "skip")] == [False, False, False, True]
    assert not policy.blocks("a.c", "skip", dependent=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"severity": {"a.b": "loud"}}, "severity of a.b is 'loud'; allowed: fail, warn, advisory"),
        ({"required": ["a.z"]}, "names 'a.z' without a severity"),
        ({"more": 1}, "has the tables name, not_run, required, severity, thresholds; seen more, name"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(said)):
        policy_of({**content(), **change})


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(SettingsError, match="no severity policy 'v0'; there are v1, v2"):
        load_policy("v0")
