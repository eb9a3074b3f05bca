"""Decisions made in other processes are the same; what a world is worth depends on where it runs."""

from dataclasses import replace
from functools import partial

import pytest

from audit.bundle_batch import BundleBatch
from audit.bundle_gate import Gates, gate
from audit.bundle_workers import ONE, Workers, apart, workers_for
from audit.severity import load_policy
from ledger.bundle import Bundle
from ledger.errors import BundleError
from ledger.ledger import LedgerHandle
from training.bundles import register, seal
from training.rollout.harness import tool_loop
from training.verifiers import verifiers
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate


def test_decisions_of_other_processes_are_those_of_this_one(ledger: LedgerHandle) -> None:
    world, bound, harness = TicketDesk(), verifiers.bind("desk_conditions"), tool_loop()
    gates = Gates(world, bound, harness, load_policy())
    good, other, unsolved = generate(3, seed=7)
    drafts = (good, other, replace(unsolved, reference=None))
    bundles = [Bundle(draft, world.version, bound.ref.method_id, harness.harness_id) for draft in drafts]
    register(ledger, world, [(bound, "program")], harness)
    seal(ledger, bundles)
    there = gate(ledger, gates, bundles, workers=Workers(2, 2))
    here = [gates.decide(bundle, there.world, batch=BundleBatch(tuple(bundles))) for bundle in bundles]
    assert there.new == 3
    assert [decision.admitted for decision in here] == [True, True, False]
    assert [decision.as_json() for decision in there.decisions] == [decision.as_json() for decision in here]
    assert not any(decision.known for decision in there.decisions)


def test_what_is_raised_there_is_raised_here() -> None:
    with apart(partial(generate, seed=7), 1) as generated:
        assert generated(2) == generate(2, seed=7)
        with pytest.raises(BundleError, match="count is -1"):
            generated(-1)


def test_few_bundles_and_worlds_in_processes_of_their_own_start_none() -> None:
    class Apart(TicketDesk):
        def close(self) -> None:
            """Nothing to end."""

    assert workers_for(TicketDesk(), 5) == ONE
    assert workers_for(Apart(), 500).processes == 0
    assert workers_for(Apart(), 500).threads > 1
