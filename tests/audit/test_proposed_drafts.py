"""What proposers make goes through the gates like any other task."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from audit.bundle_gate import Gated, Gates, gate
from audit.severity import DEFAULT, load_policy
from ledger.bundle import Bundle, BundleDraft
from ledger.ledger import LedgerHandle
from training.bundles import register, seal
from training.proposers import ProposalContext, proposers
from training.rollout.harness import tool_loop
from training.verifiers import verifiers
from training.worlds import World
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate


def gated(ledger: LedgerHandle, world: World[Any], drafts: list[BundleDraft]) -> Gated:
    """The gates' decision about drafts, judged by the verifier that they name."""
    (name,) = {draft.spec["verifier"] for draft in drafts}
    bound = verifiers.bind(name)
    gates = Gates(world, bound, tool_loop(), load_policy(DEFAULT))
    bundles = [Bundle(draft, world.version, bound.ref.method_id, gates.harness.harness_id) for draft in drafts]
    register(ledger, world, [(bound, "state_diff")], gates.harness)
    seal(ledger, bundles)
    return gate(ledger, gates, bundles)


@pytest.mark.parametrize("name", ["axes_sampler", "healthy_inversion", "state_first", "tool_graph", "service_combination"])
def test_drafts_of_the_desk_are_admitted_by_both_gates(ledger: LedgerHandle, name: str) -> None:
    desk = TicketDesk()
    base = replace(generate(1, seed=1)[0], split="train")
    context = ProposalContext(desk, drafts=(base,))
    if name == "service_combination":
        context = ProposalContext(desk, drafts=tuple(proposers["state_first"](context, 4, rng=Random(3), most=2)))
    found = gated(ledger, desk, list(proposers[name](context, 3, rng=Random(5))))
    assert [
        (item.bundle.draft.name, {n: item.results[n].reason for n in item.blocking}) for item in found.decisions if not item.admitted
    ] == []
