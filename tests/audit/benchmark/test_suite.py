"""A suite: every kind strikes, twins differ by the fault alone, truth follows from both, and nothing of it depends on the labels."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from audit.attribution import attribute
from audit.benchmark.attributing import Answer, answers_bytes, attributed, classified
from audit.benchmark.kinds import KINDS, chosen_kinds
from audit.benchmark.score import score
from audit.benchmark.suite import GENUINE_A_CASE, SuiteSpec, make
from audit.benchmark.truth import truths
from audit.benchmark.updates import make_updates, update_truths
from audit.benchmark.verifiers.misjudging import WAYS
from audit.replaying import Replayer
from audit.rollout_reading import read_subjects
from audit.rollout_subject import RolloutSubject
from ledger.errors import SettingsError, UnknownId
from ledger.events import BatchAssembled, RewardDerived, VerifierRegistered
from ledger.ledger import LedgerHandle, open_ledger
from ledger.verify import verify

from .rig import CASES, SEED, Made, open_suite, plain_rule

ALWAYS = {"connection_dropped", "verifier_crashed", "false_accept", "false_reject", "length_stop_as_failure", "call_dropped_by_parser"}
"""Kinds that this seed lets cause at least half of their cases."""


def ids(made: Made) -> list[str]:
    return [truth.subject.removeprefix("rollout-") for truth in truths(made.suite).known]


def test_every_kind_strikes_and_most_of_them_cause_failures(made: Made) -> None:
    found = truths(made.suite)
    struck = Counter(truth.planted for truth in found.known)
    caused = Counter(truth.fault for truth in found.known if truth.sort == "caused")
    kinds = [kind.name for kind in made.suite.spec.rollout_kinds]
    assert len(kinds) == 17
    assert all(struck[kind] >= CASES - 2 for kind in kinds), struck
    assert all(caused[kind] for kind in kinds if kind != "seed_ignored"), caused
    assert all(caused[kind] * 2 >= CASES for kind in ALWAYS), caused
    # Neither world's reset has any randomness.
    assert caused["seed_ignored"] == 0
    assert found.apart == {}


def test_truth_is_what_the_twin_says(made: Made) -> None:
    found = {truth.subject: truth for truth in truths(made.suite).known}
    rollouts = made.suite.rollout_ids()
    for case in made.suite.cases:
        if case.kind is None:
            continue
        mine, twin = (found.get(f"rollout-{rollouts[made.suite.run.group_id(group)]}") for group in (case.group, case.twin))
        if mine is None:
            continue
        assert twin is not None and twin.planted is None and twin.sort in ("clean", "genuine")
        wanted = {
            ("clean", True): {"caused", "recovered"}, ("genuine", False): {"incidental", "recovered"}, ("genuine", True): {"caused", "incidental"},
            ("clean", False): {"caused", "recovered"},
        }  # fmt: skip
        assert mine.sort in wanted[twin.sort, case.kind.name in WAYS], (case.kind.name, twin.sort, mine.sort)
        assert (mine.boundary == case.kind.boundary) == (mine.sort == "caused")


def test_genuine_failures_are_of_many_policies(made: Made) -> None:
    plain = [case for case in made.suite.cases if case.kind is None]
    assert len(plain) == GENUINE_A_CASE * CASES
    assert len({(case.group.bundle.draft.name, case.group.policy.name) for case in plain}) == len(plain)
    genuine = [truth for truth in truths(made.suite).known if truth.sort == "genuine"]
    assert len(genuine) >= 3 * CASES and len({case.group.policy.name for case in plain}) >= 8


def test_a_struck_rollout_is_its_twin_until_the_fault_strikes(made: Made) -> None:
    rollouts = made.suite.rollout_ids()
    case = next(c for c in made.suite.cases if c.kind is not None and c.kind.name == "call_dropped_by_parser")
    mine, twin = (rollouts[made.suite.run.group_id(group)] for group in (case.group, case.twin))
    struck, healthy = read_subjects(made.ledger, [mine, twin])
    assert case.group.plants is not None
    at = case.group.plants.plan.root[0].at[0]  # type: ignore[union-attr]
    assert [struck.answer(call)["choices"] for call in struck.calls[: at + 1]] == [
        healthy.answer(call)["choices"] for call in healthy.calls[: at + 1]
    ]
    assert len(struck.tools) < len(healthy.tools)
    # What was lost stands in the engine's answer, as after a real parser's fault, and nowhere among the calls.
    lost = struck.answer(struck.calls[at])["choices"][0]["message"]["tool_calls"]
    assert lost and all(tool.model_call_id != struck.calls[at].call_id for _, tool in struck.tools)


def test_tokens_extend_each_other_but_where_the_template_or_the_history_changes(made: Made) -> None:
    rollouts = made.suite.rollout_ids()
    rows: dict[str, list[int]] = {}
    changed = ("template_drift", "history_cut")
    for case in made.suite.cases:
        name = "none" if case.kind is None else case.kind.name
        # A policy that says the same again and again hides a cut.
        if name in ("none", "tool_timeout") or (name in changed and case.group.policy.name in ("careful", "oracle")):
            (subject,) = read_subjects(made.ledger, [rollouts[made.suite.run.group_id(case.group)]])
            rows.setdefault(name, []).append(len(subject.built.rows))
    assert set(rows["none"]) == {1} and set(rows["tool_timeout"]) == {1}
    assert all(set(rows[name]) == {2} for name in changed), rows


def test_every_bundle_names_one_verifier_so_that_its_registration_tells_nothing(made: Made) -> None:
    assert len({group.bundle.verifier_id for group in made.suite.groups.values()}) == 1
    registered = [event.body for event in made.ledger.read(kinds=["VerifierRegistered"])]
    assert [body.planted for body in registered if isinstance(body, VerifierRegistered) and body.name == "misjudging"] == [True]
    method = next(body.method for body in registered if isinstance(body, VerifierRegistered) and body.name == "misjudging")
    names = [group.bundle.draft.spec["variant"] for group in made.suite.groups.values()]
    assert not any(name.encode() in made.ledger.blob(method.blob_id) for name in names)


def said(made: Made, ledger: LedgerHandle, attribution: Any) -> list[Answer]:
    seeds, worlds = {made.suite.run.run_id: made.suite.run.root_seed}, {world.version: world for world in made.suite.worlds.values()}
    with Replayer(ledger, root_seeds=seeds, worlds=worlds) as replayer:
        return list(attributed(ledger, ids(made), attribution, replayer))


def test_an_attribution_is_scored_and_a_wrong_one_scores_less(made: Made) -> None:
    known = truths(made.suite).known
    answers = said(made, made.ledger, plain_rule)
    found = score(known, answers)
    by_name = {one.name: one for one in found.classes}
    assert by_name["verifier"].recall.hits >= CASES and "environment" in found.missed
    assert sum(found.confusion.values()) + sum(found.incidental.values()) == len(known)
    blind = score(known, [replace(answer, boundary="none", fault=None) for answer in answers])
    assert {one.name: one.recall.hits for one in blind.classes}["verifier"] == 0


def test_answers_are_byte_equal_without_the_streams_of_labels(made: Made) -> None:
    assert made.labels >= 17 * (CASES - 1) + 4 * CASES
    with open_ledger(made.unlabelled_url, project="test", actor_id="tester") as unlabelled:
        assert not unlabelled.read_streams([truth.subject.replace("rollout-", "fault-") for truth in truths(made.suite).known])
        without = answers_bytes(said(made, unlabelled, attribute))
    assert answers_bytes(said(made, made.ledger, attribute)) == without


def test_a_suite_is_made_once(made: Made) -> None:
    before = made.ledger.barrier()
    make(made.suite)
    make_updates(made.ledger, made.runs)
    assert made.ledger.barrier() == before
    assert verify(made.ledger).intact


def test_a_suite_is_a_function_of_its_seed(made: Made, ledger: LedgerHandle, tmp_path: object) -> None:
    again = open_suite(ledger, made.suite.settings.data_dir)
    assert list(again.groups) == list(made.suite.groups)
    other = open_suite(ledger, made.suite.settings.data_dir, seed=SEED + 1, cases=1)
    assert not set(other.groups) & set(made.suite.groups)
    with pytest.raises(UnknownId, match="make the suite first"):
        truths(other)


def test_a_suite_refuses_what_it_cannot_make(ledger: LedgerHandle, made: Made) -> None:
    with pytest.raises(SettingsError, match="allowed: ticket_desk, bfcl"):
        SuiteSpec(0, 5, worlds=("gym",))
    with pytest.raises(SettingsError, match="0 cases"):
        SuiteSpec(0, 0)
    with pytest.raises(SettingsError, match="no failing policy 'nobody'"):
        open_suite(ledger, made.suite.settings.data_dir, cases=1, policies=("nobody",))


def test_forged_updates_are_labelled_and_the_others_are_sound(made: Made) -> None:
    known = update_truths(made.ledger, made.runs)
    assert Counter(truth.fault for truth in known) == {
        None: 2 * 4 * CASES,
        **{k.name: CASES for k in chosen_kinds("all") if k.boundary == "training"},
    }
    right = {truth.subject.removeprefix("update-"): truth.fault for truth in known}
    answers = list(classified(made.ledger, list(right), lambda ledger, update_id: right[update_id]))
    assert score(known, answers).by_kind == {(kind, "training"): CASES for kind in KINDS if KINDS[kind].boundary == "training"}


def test_each_forged_update_shows_what_is_wrong_with_it_and_sound_ones_do_not(made: Made) -> None:
    given = {body.reward_id: body for event in made.ledger.read(kinds=["RewardDerived"]) if isinstance(body := event.body, RewardDerived)}
    batches = {
        (body.run_id, body.round): body
        for event in made.ledger.read(kinds=["BatchAssembled"])
        if isinstance(body := event.body, BatchAssembled)
    }
    for run in made.runs:
        subjects = iter(read_subjects(made.ledger, [name for number in range(3) for name in run.round(number).rollout_ids]))
        for number in range(3):
            signs = _signs(batches[run.run_id, number], [next(subjects) for _ in range(4)], given)
            assert signs == ({run.kind.name} if number == 2 else set()), (run.kind.name, number)


def _signs(batch: BatchAssembled, subjects: list[RolloutSubject], given: dict[str, RewardDerived]) -> set[str]:
    """What is wrong with an update, by what each fault does."""
    signs = set()
    if any((given[row.reward_id or ""].value, given[row.reward_id or ""].rollout_id) != (row.reward, row.rollout_id) for row in batch.rows):
        signs.add("swapped_rewards")
    mean = sum(row.reward or 0.0 for row in batch.rows) / len(batch.rows)
    if any(abs((row.advantage or 0.0) - ((row.reward or 0.0) - mean)) > 1e-9 for row in batch.rows):
        signs.add("masked_row_votes")
    calls = [call for subject in subjects for call in subject.calls]
    assert all(call.tokens is not None and call.token_fault is None for call in calls)
    if any(span.model_version != batch.model_version for call in calls if call.answered for span in call.answered.version_spans):
        signs.add("stale_weights")
    if not any(call.tokens.logprobs.any() for call in calls if call.tokens is not None and call.tokens.logprobs is not None):
        signs.add("logprobs_filled")
    return signs


@pytest.mark.slow
def test_a_hundred_cases_a_kind_cause_what_they_should(ledger: LedgerHandle, made: Made) -> None:
    suite = open_suite(ledger, made.suite.settings.data_dir, cases=150, seed=SEED + 1)
    make(suite)
    found = truths(suite)
    caused = Counter(truth.fault for truth in found.known if truth.sort == "caused")
    assert all(caused[kind.name] >= 100 for kind in suite.spec.rollout_kinds if kind.name != "seed_ignored"), caused
    assert sum(truth.sort == "genuine" for truth in found.known) >= 600
    assert found.apart == {}
