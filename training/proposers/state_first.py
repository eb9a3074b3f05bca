"""Writes the hidden specification and the expected state after every step first, and the request only then."""

from random import Random

from ledger.bundle import BundleDraft
from ledger.canonical import digest
from ledger.errors import ProposalError
from training.proposers import AskModel, ProposalContext, Proposed
from training.proposing.acting import act, with_reference
from training.proposing.drafting import base_drafts, drafted, generator, provenance
from training.proposing.exploring import Explorer, Move, is_plain
from training.proposing.milestones import milestones_of
from training.proposing.wordings import WORDINGS, action_of, goal_of, user_request
from training.worlds import Change


def state_first(
    context: ProposalContext, n: int, *, rng: Random | None = None, ask: AskModel | None = None, least: int = 1, most: int = 4
) -> Proposed:
    """Drafts whose spec holds one milestone a step and whose reference holds the expected state after every step.

    A specification is a walk of legal calls from a known task's initial state; every step changes places that no other step touches, so
    that all milestones hold at the end, whatever the order. The request is rendered from it, either as actions or, where every step sets
    plain values, as the wanted state.

    Args:
        context: its drafts give the initial states.
        n: how many.
        rng: the only source of randomness.
        ask: not used.
        least, most: steps of a specification, 1 or more.
    Raises:
        ProposalError: there is no draft to start from, or the steps are no range.
    Source: Tev (arXiv 2610.18868), latent-world-first construction; the form of the specification is our reading.
    """
    if not 1 <= least <= most:
        raise ProposalError(f"steps from {least} to {most}; allowed: 1 or more, in order")
    bases = base_drafts(context, "state_first")

    def make(own: Random, seed: int) -> BundleDraft:
        base = own.choice(bases)
        explorer = Explorer(context.world, base, own)
        moves = _specification(explorer, own.randint(least, most))
        return _rendered(context, base, moves, own, seed)

    return drafted(n, generator(rng), make)


def _specification(explorer: Explorer, steps: int) -> list[Move]:
    moves: list[Move] = []
    state, touched = explorer.start, list[str]()
    for _ in range(steps):
        moves.append(explorer.move(state, avoid=touched))
        state = moves[-1].state
        touched += [change.path for change in moves[-1].changes]
    return moves


def _rendered(context: ProposalContext, base: BundleDraft, moves: list[Move], own: Random, seed: int) -> BundleDraft:
    tools = context.world.tools(base, turn=0)
    as_goals = own.random() < 0.5 and all(is_plain(change) for move in moves for change in move.changes)
    if as_goals:
        parts = [f"see to it that {goal_of(change)}" for move in moves for change in move.changes]
    else:
        parts = [action_of(move.call, tools) for move in moves]
    wording = own.choice(sorted(WORDINGS))
    turns = (tuple(move.call for move in moves),)
    family = [[move.call.name, sorted(_places(move.changes))] for move in moves]
    draft = BundleDraft(
        name=f"state_first_{context.world.name}_{seed}", world=context.world.name,
        request=user_request(base, WORDINGS[wording](parts)), initial_state=base.initial_state,
        spec={"milestones": milestones_of([move.changes for move in moves])}, split=base.split,
        provenance=provenance("state_first", seed, base, family=family, wording=f"{'goals' if as_goals else 'actions'}/{wording}"),
    )  # fmt: skip
    acted = act(context.world, draft, turns)
    states = [digest(step.material, allow_nul=True) for step in acted.steps]
    drawn = with_reference(context.world, draft, turns)
    return BundleDraft(**{**vars(drawn), "reference": {**(drawn.reference or {}), "states": states}})


def _places(changes: tuple[Change, ...]) -> list[str]:
    """Where changes are, without the names of rows: the table and the column."""
    keys = [change.path.split("/")[1:] for change in changes]
    return ["/".join([path[0], path[-1]] if len(path) > 2 else path[:1]) for path in keys]
