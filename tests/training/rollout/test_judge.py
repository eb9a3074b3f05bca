"""Judging from the ledger alone: the same evidence, any verifier, and a broken one is no number."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ledger import queries
from ledger.errors import BundleError, UnknownId, VerifierFailed
from ledger.events import VerdictGiven
from ledger.ledger import LedgerHandle
from ledger.methods import Bound, MethodRef
from ledger.settings import Settings
from training import stages
from training.bundles import load
from training.lab import Lab
from training.rollout.judge import Judging, evidence, judge
from training.run_config import Collection, RunConfig, TaskSource
from training.verifiers import JudgeTask, TraceStep, Verdict


@pytest.fixture
def lab(ledger: LedgerHandle, tmp_path: Path) -> Lab:
    config = RunConfig(
        name="t",
        seed=1,
        tasks=(TaskSource(world="ticket_desk", count=1, seed=3),),
        collect=(Collection(policy="oracle"), Collection(policy="gives_up")),
    )
    opened = Lab(config, ledger, Settings(data_dir=tmp_path))
    stages.worlds(opened)
    stages.task_bundles(opened)
    stages.rollouts(opened)
    queries.fresh(ledger)
    return opened


def pairs(lab: Lab) -> list[tuple[str, str]]:
    return [(line.rollout_id, line.bundle_id) for line in queries.rollouts(lab.ledger).lines]


def test_evidence_is_what_happened(lab: Lab) -> None:
    oracle = next(line for line in queries.rollouts(lab.ledger).lines if line.policy == "oracle")
    seen = evidence(lab.ledger, [oracle.rollout_id])[oracle.rollout_id]
    assert seen is not None
    assert len(seen.trace) == oracle.tool_calls
    draft = load(lab.ledger, oracle.bundle_id).draft
    world = lab.worlds["ticket_desk"]
    state = world.reset(draft, seed=0)
    assert seen.s0 == world.view(state)
    for step in seen.trace:
        state, observation = world.call(state, step.call)
        assert observation == step.observation
    assert seen.s_end == world.view(state)
    assert seen.state_end == world.digest(state)


@pytest.mark.parametrize("error", [VerifierFailed("no checker"), KeyError("x"), ZeroDivisionError("x")])
def test_a_verifier_that_breaks_gives_an_error_and_no_result(lab: Lab, error: Exception) -> None:
    def breaks(s0: Any, s_end: Any, trace: Sequence[TraceStep], task: JudgeTask, *, ask: Any = None) -> Verdict:
        raise error

    judging = Judging(Bound(breaks, MethodRef("tests", "breaks", {}, "0" * 64), ""), "program", "bundle")
    assert judge(lab.ledger, pairs(lab), judging, lab.worlds["ticket_desk"]) == 2
    lab.ledger.barrier()
    given = [event.body for event in lab.ledger.read(kinds=["VerdictGiven"])]
    assert all(isinstance(body, VerdictGiven) and body.status == "error" and body.passed is None and body.error for body in given)
    stages.rewards(lab)
    queries.fresh(lab.ledger)
    assert {line.value for line in queries.rewards(lab.ledger).lines} == {None}
    assert queries.outcomes(lab.ledger, by=())[0].counts["verifier_failed"] == 2


def test_judging_again_adds_nothing_and_another_verifier_adds_its_own(lab: Lab) -> None:
    first, second = lab.judgings["ticket_desk"][:2]
    assert [judge(lab.ledger, pairs(lab), judging, lab.worlds["ticket_desk"]) for judging in (first, first, second)] == [2, 0, 2]
    assert len({judging.verdict_id("r") for judging in lab.judgings["ticket_desk"]}) == 5


def test_nothing_is_judged_that_has_not_ended(lab: Lab) -> None:
    with pytest.raises(UnknownId, match="'nowhere' is unknown or has not ended"):
        evidence(lab.ledger, ["nowhere"])


def test_a_bundle_is_what_was_sealed_or_an_error(lab: Lab) -> None:
    bundle = lab.bundles[0]
    assert load(lab.ledger, bundle.bundle_id) == bundle
    with pytest.raises(UnknownId, match="no bundle 'ffff"):
        load(lab.ledger, "f" * 64)
    with pytest.raises(BundleError, match="split 'dev' is none of train, validation, test"):
        type(bundle.draft)(**{**bundle.draft.__dict__, "split": "dev"})
