"""Bundles gated a second, worlds forked and compared a second; each against a control in the same rounds.

A control is what any state-based check has to do at least once: `copy.deepcopy` of the view for a fork, and a verdict on the
reference for a gate. Absolute numbers are the machine's; the ratios are compared.
"""

import copy
import itertools
import time
from collections.abc import Callable
from statistics import median

import pytest

from audit.bundle_batch import BundleBatch
from audit.bundle_gate import Gates
from audit.bundle_subject import BundleSubject
from audit.severity import load_policy
from audit.world_gate import check_world
from ledger.bundle import Bundle
from ledger.canonical import canonical_bytes, parse
from tests.benchmarks.rounds import interleaved, report
from training.rollout.harness import tool_loop
from training.verifiers import verifiers
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate

pytestmark = pytest.mark.bench
FORK_AND_COMPARE_S = 0.05
FORKS = 50
BUNDLES = 10


def rate(work: Callable[[], int]) -> Callable[[], float]:
    """An arm: units of work a second."""

    def arm() -> float:
        begun = time.perf_counter()
        done = work()
        return done / (time.perf_counter() - begun)

    return arm


def test_bundles_gated_a_second() -> None:
    world, harness, policy = TicketDesk(), tool_loop(), load_policy()
    bound = verifiers.bind("desk_conditions")
    gates = Gates(world, bound, harness, policy)
    bundles = [Bundle(draft, world.version, bound.ref.method_id, harness.harness_id) for draft in generate(200, seed=7)]
    batch, environment = BundleBatch(tuple(bundles)), check_world(world, [bundle.draft for bundle in bundles[:8]], policy)
    take = itertools.cycle(range(0, 200, BUNDLES))
    assert gates.checks

    def gated() -> int:
        start = next(take)
        return len([gates.decide(bundle, environment, batch=batch) for bundle in bundles[start : start + BUNDLES]])

    def oracle_only() -> int:
        start = next(take)
        subjects = [BundleSubject(bundle, world, bound.call) for bundle in bundles[start : start + BUNDLES]]
        return sum(subject.reference is not None and subject.reference.accepted for subject in subjects)

    rates = interleaved({"reference replayed and judged once (control)": rate(oracle_only), "both gates, 61 results": rate(gated)})
    ratios = report("Bundles gated", rates, "reference replayed and judged once (control)", "bundles/s")
    # A decision replays and judges some fifty paths; far more than that would be work done twice.
    assert ratios["both gates, 61 results"] > 1 / 150


def test_forks_a_second() -> None:
    world = TicketDesk()
    draft = generate(1, seed=7)[0]
    state = world.reset(draft, seed=0)
    snapshot, view = world.snapshot(state), world.view(state)

    def forked() -> int:
        return len(world.fork(snapshot, FORKS))

    def forked_and_compared() -> int:
        states = world.fork(snapshot, FORKS)
        assert not any(world.diff(state, other).changes for other in states)
        return len(states)

    rates = interleaved(
        {
            "copy.deepcopy of the view (control)": rate(lambda: len([copy.deepcopy(view) for _ in range(FORKS)])),
            "JSON round trip of the view": rate(lambda: len([parse(canonical_bytes(view)) for _ in range(FORKS)])),
            "fork": rate(forked),
            "fork and compare": rate(forked_and_compared),
        }
    )
    ratios = report("Forks of the desk", rates, "copy.deepcopy of the view (control)", "forks/s")
    assert 1 / median(rates["fork and compare"]) < FORK_AND_COMPARE_S
    assert ratios["fork"] > 0.02
