"""Samples chains of calls along a tool-dependency graph, so that each call is unlocked by the answers before it."""

from collections.abc import Mapping
from random import Random
from typing import Any

from ledger.bundle import BundleDraft
from ledger.canonical import digest
from ledger.errors import ProposalError
from training.proposers import AskModel, ProposalContext, Proposed
from training.proposing.acting import with_reference
from training.proposing.chains import Goal, Weaver, goals
from training.proposing.drafting import base_drafts, drafted, generator, provenance
from training.proposing.tool_graph import ToolGraph, observe
from training.proposing.wordings import WORDINGS, action_of, user_request


def tool_graph(
    context: ProposalContext, n: int, *, rng: Random | None = None, ask: AskModel | None = None, depth: int = 5, ends: int = 2
) -> Proposed:
    """Drafts with a declared depth, and the graphs that they were drawn from as artifacts, one a task that they start from.

    The graph holds which answers feed which arguments, found by probing. A draft picks one or more tools that change something, and calls
    what unlocks each, each fed argument by a value that an earlier call answered. The request speaks of such values by what tells them
    apart, never by the value itself; only what no tool answers is said.

    Args:
        context: its drafts give the initial states.
        n: how many.
        rng: the only source of randomness.
        ask: not used.
        depth: calls on the longest chain of answers and arguments, at most; 1 or more.
        ends: calls that a draft ends its chains with, at most; 1 or more.
    Raises:
        ProposalError: no draft to start from, a parameter below 1, or no tool that changes something within the depth.
    Source: EnvFactory (arXiv 2605.18703), the tool graph and its topological sampler; probing instead of reading names is our own.
    """
    if depth < 1 or ends < 1:
        raise ProposalError(f"depth {depth} and ends {ends}; allowed: 1 or more")
    draws = generator(rng)
    bases = base_drafts(context, "tool_graph")
    graphs: dict[str, ToolGraph] = {}

    def graph_of(base: BundleDraft) -> ToolGraph:
        key = digest(base.initial_state, allow_nul=True)[:12]
        if key not in graphs:
            graphs[key] = observe(context.world, base, rng=Random(key))
        return graphs[key]

    if not any(_within(graph_of(base), depth) for base in bases):
        raise ProposalError(f"no tool of world {context.world.name!r} changes anything within depth {depth}")

    def make(own: Random, seed: int) -> BundleDraft:
        base = own.choice(bases)
        graph = graph_of(base)
        return _draft(context, base, graph, (own, seed), {"most": depth, "ends": ends})

    drafts = drafted(n, draws, make)
    return Proposed(drafts.drafts, drafts.rejected, {f"tool_graph/{key}": graph.as_json() for key, graph in sorted(graphs.items())})


def _within(graph: ToolGraph, depth: int) -> dict[int, list[Goal]]:
    found: dict[int, list[Goal]] = {}
    for goal in goals(graph):
        if goal.depth <= depth:
            found.setdefault(goal.depth, []).append(goal)
    return found


def _draft(
    context: ProposalContext, base: BundleDraft, graph: ToolGraph, draws: tuple[Random, int], limits: Mapping[str, int]
) -> BundleDraft:
    own, seed = draws
    choice = _within(graph, limits["most"])
    if not choice:
        raise ProposalError("no goal: nothing changes within the depth from this state")
    weaver = Weaver(context.world, base, graph, own)
    for _ in range(own.randint(1, limits["ends"])):
        weaver.end_with(own.choice(choice[own.choice(sorted(choice))]))
    chain = weaver.chain
    tools = context.world.tools(base, turn=0)
    wording = own.choice(sorted(WORDINGS))
    changing = [index for index, changes in enumerate(chain.changes) if changes]
    parts = [action_of(chain.calls[index], tools, said=chain.words[index]) for index in changing]
    text = WORDINGS[wording](parts) + ("\nAll of this describes how things are now, before you begin." if len(parts) > 1 else "")
    links: list[dict[str, Any]] = [link.as_json() for link in chain.links]
    draft = BundleDraft(
        name=f"tool_graph_{context.world.name}_{seed}", world=context.world.name,
        request=user_request(base, text), initial_state=base.initial_state,
        spec={"depth": max(chain.depths), "links": links}, split=base.split,
        provenance=provenance(
            "tool_graph", seed, base, wording=wording, depth=max(chain.depths),
            family=[[call.name for call in chain.calls], [[link["call"], link["parameter"], link["source"]] for link in links]],
        ),
    )  # fmt: skip
    return with_reference(context.world, draft, (tuple(chain.calls),))
