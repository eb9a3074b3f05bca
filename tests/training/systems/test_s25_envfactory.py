"""S25 EnvFactory: unlocking order, and what a reference path costs legal alternatives."""

from collections import Counter
from random import Random
from typing import Any

from ledger.bundle import BundleDraft
from ledger.canonical import canonical_bytes
from training.proposers import ProposalContext, proposers
from training.proposing.acting import Turns, act, calls_of
from training.proposing.tool_graph import observe
from training.verifiers import JudgeTask, verifiers
from training.worlds import ToolCall
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.bundles import generate

DESK = TicketDesk()


def path_reward(trace: float, state: float, tau: float) -> float:
    """The published reward without its penalties for extra and bad calls."""
    return max(0.0, tau * trace + (1 - tau) * state)


def same_calls(reference: Turns, seen: Turns) -> float:
    wanted, had = (Counter(canonical_bytes([c.name, dict(c.arguments)]) for turn in calls for c in turn) for calls in (reference, seen))
    return float(not wanted - had)


def state_reward(draft: BundleDraft, turns: Turns) -> float:
    start = DESK.view(DESK.reset(draft, seed=0))
    end = DESK.view(act(DESK, draft, turns).state)
    return float(verifiers["end_state"](start, end, (), JudgeTask(draft, DESK.material)).passed is True)


def test_every_call_comes_after_what_unlocks_it() -> None:
    context = ProposalContext(DESK, drafts=tuple(generate(1, seed=2)))
    graph = observe(DESK, context.drafts[0], rng=Random(4))
    for draft in proposers["tool_graph"](context, 4, rng=Random(4)):
        called: set[str] = set()
        for call in (draft.reference or {})["turns"][0]:
            for fed in graph.node(call["name"]).fed:
                assert called & {edge.source for edge in graph.feeding(call["name"], fed)}
            called.add(call["name"])


def test_the_published_reward_at_three_temperatures() -> None:
    assert [round(path_reward(0.0, 1.0, tau), 2) for tau in (0.9, 0.5, 0.1)] == [0.10, 0.50, 0.90]


def test_legal_alternatives_cost_nothing_by_state_and_nine_tenths_by_reference_path() -> None:
    draft = generate(4, seed=4)[0]
    reference = calls_of((draft.reference or {})["turns"])
    (first,) = reference
    mail, update = (next(call for call in first if call.name == name) for name in ("send_email", "update_ticket"))
    in_time = draft.initial_state["clock"]["now"]
    stamped = ToolCall("update_ticket", {"id": update.arguments["id"], "fields": {"last_reminded_at": in_time}})
    others: list[Any] = [call for call in first if call not in (mail, update)]
    reads = [call for call in others if call.name in ("query_tickets", "get_owner")]
    writes = [call for call in others if call not in reads]
    alternatives = {
        "mail then update": (*reads, mail, stamped, *writes),
        "update then mail": (*reads, stamped, mail, *writes),
        "listing all instead of asking": (ToolCall("query_tickets", {}), *reads[1:], mail, stamped, *writes),
    }
    for name, calls in alternatives.items():
        turns = (tuple(calls),)
        assert state_reward(draft, turns) == 1.0, name
        assert 1.0 - state_reward(draft, turns) == 0.0
        assert round(path_reward(same_calls(reference, turns), 1.0, 0.9), 2) == 0.10, name
