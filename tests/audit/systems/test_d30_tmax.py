"""Digest 30 Tmax: axes with a balance table, initial-state and final-state tests, and n-gram decontamination."""

from dataclasses import replace
from random import Random

import pytest

from audit.bundle_batch import BundleBatch
from audit.bundle_checks import bundle_checks
from audit.bundle_subject import BundleSubject
from audit.severity import DEFAULT, load_policy
from ledger.bundle import Bundle, BundleDraft
from training.proposers import ProposalContext, Proposed, proposers
from training.proposing.axes import Balance, off_balance
from training.verifiers import verifiers
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate

POLICY = load_policy(DEFAULT)
DESK = TicketDesk()
AXES = {"length": ("one", "two"), "form": ("actions", "goals"), "wording": ("plain", "numbered"), "persona": ("none", "manager")}


@pytest.fixture(scope="module")
def sampled() -> Proposed:
    return proposers["axes_sampler"](ProposalContext(DESK, drafts=tuple(generate(4, seed=3))), 24, rng=Random(2), axes=AXES)


def subject(draft: BundleDraft, *others: BundleDraft) -> BundleSubject:
    bundles = [Bundle(item, DESK.version, "verifier", "harness") for item in (draft, *others)]
    return BundleSubject(bundles[0], DESK, verifiers["end_state"], BundleBatch(bundles))


def test_the_balance_table_counts_every_draft_once_an_axis_and_lies_near_even(sampled: Proposed) -> None:
    rows = [Balance(**row) for row in sampled.artifacts["balance"]]
    assert len(sampled) == 24
    for axis in AXES:
        assert sum(row.count for row in rows if row.axis == axis) == 24
    assert off_balance(rows) <= 0.25


def test_the_initial_state_test_passes_and_the_final_state_test_fails_on_the_initial_state(sampled: Proposed) -> None:
    for draft in sampled[:8]:
        found = subject(draft)
        assert found.start_material == DESK.material(draft.initial_state)
        assert found.no_op.verdict.passed is False
        assert found.reference is not None and found.reference.accepted


def test_a_planted_copy_of_a_held_out_task_is_flagged_and_another_task_is_not(sampled: Proposed) -> None:
    long = max(sampled, key=lambda draft: len(draft.request["turns"][0][0]["content"]))
    text = long.request["turns"][0][0]["content"]
    held_out = replace(
        long, name="held_out", split="test", provenance={"proposer": "x", "family": "f", "wording": "w", "names": "n"},
        request={"turns": [[{"role": "user", "content": f"Dear desk. {text} Thank you."}]]},
    )  # fmt: skip
    results = {item.check_id: item for item in bundle_checks["split_leak"](subject(long, held_out), POLICY.thresholds)}
    assert results["split.ngram_leak"].status == "fail"
    assert results["split.ngram_leak"].measured["share"] == 1.0
    far = generate(1, seed=9)[0]
    other = replace(held_out, request={"turns": far.request["turns"]})
    assert {item.check_id: item.status for item in bundle_checks["split_leak"](subject(long, other), POLICY.thresholds)}[
        "split.ngram_leak"
    ] == "pass"
