"""Samples tasks along declared axes, each axis drawn on its own, so that a set of tasks is balanced by construction."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from random import Random

from ledger.bundle import BundleDraft
from ledger.errors import ProposalError
from training.proposers import AskModel, ProposalContext, Proposed
from training.proposing.acting import with_reference
from training.proposing.axes import Axes, Cell, balance, draw_cell
from training.proposing.drafting import base_drafts, drafted, generator, provenance
from training.proposing.exploring import Explorer, Move
from training.proposing.wordings import WORDINGS, action_of, goal_of, user_request

PERSONAS: Mapping[str, str] = {
    "none": "",
    "newcomer": "I am new here, so please bear with me. ",
    "manager": "This comes from the head of the department and is due today. ",
    "engineer": "Ticket from operations, precise execution matters. ",
}
LENGTHS: Mapping[str, int] = {"one": 1, "two": 2, "three": 3, "five": 5}
ANY = "any"
AXES: Axes = {
    "tool": (ANY,), "length": tuple(LENGTHS), "form": ("actions", "goals"), "wording": tuple(WORDINGS), "persona": tuple(PERSONAS),
}  # fmt: skip
_TRIES_A_CELL = 8


def axes_sampler(
    context: ProposalContext, n: int, *, rng: Random | None = None, ask: AskModel | None = None, axes: Axes | None = None
) -> Proposed:
    """Drafts over a grid of axes, with the balance table as an artifact.

    A cell is drawn first and then filled: several tries go to the same cell before it is given up, so that hard cells are not thinned out
    unseen; what stays empty is counted by the cell's reason.

    Args:
        context: its drafts give the initial states.
        n: how many.
        rng: the only source of randomness.
        ask: not used.
        axes: axis to its values: `tool` (tool names, or `any`), `length`, `form`, `wording`, `persona`. Axes left out have their defaults.
    Raises:
        ProposalError: no draft to start from, or an axis or value that there is not.
    Source: Tmax (arXiv 2606.23321, hamishivi/tmax), independent draws over axes; these axes are our own.
    """
    bases = base_drafts(context, "axes_sampler")
    tools = [str(tool["function"]["name"]) for tool in context.world.tools(bases[0], turn=0)]
    chosen = _checked({**AXES, **(axes or {})}, tools)

    def make(own: Random, seed: int) -> BundleDraft:
        cell = draw_cell(chosen, own)
        reasons: list[str] = []
        for _ in range(_TRIES_A_CELL):
            try:
                return _filled(context, own.choice(bases), cell, own, seed)
            except ProposalError as error:
                reasons.append(str(error).partition(":")[0])
        raise ProposalError(f"empty cell, {reasons[-1]}: {cell}")

    drafts = drafted(n, generator(rng), make)
    return Proposed(drafts.drafts, drafts.rejected, {"balance": [asdict(row) for row in balance(drafts, chosen)]})


def _checked(axes: Axes, tools: Sequence[str]) -> Axes:
    allowed = {**{axis: list(values) for axis, values in AXES.items()}, "tool": [ANY, *tools]}
    for axis, values in axes.items():
        unknown = sorted(set(values) - set(allowed.get(axis, ())))
        if unknown:
            raise ProposalError(f"axis {axis!r} has values {unknown}; allowed: {allowed.get(axis) or sorted(allowed)}")
        draw_cell({axis: values}, Random(0))
    return axes


def _filled(context: ProposalContext, base: BundleDraft, cell: Cell, own: Random, seed: int) -> BundleDraft:
    explorer = Explorer(context.world, base, own)
    moves: list[Move] = []
    state, touched = explorer.start, list[str]()
    for at in range(LENGTHS[cell["length"]]):
        tools = () if at or cell["tool"] == ANY else (cell["tool"],)
        moves.append(explorer.move(state, tools=tools, avoid=touched, plain=cell["form"] == "goals"))
        state = moves[-1].state
        touched += [change.path for change in moves[-1].changes]
    changes = [change for move in moves for change in move.changes]
    if cell["form"] == "goals":
        parts = [f"see to it that {goal_of(change)}" for change in changes]
    else:
        parts = [action_of(move.call, explorer.tools) for move in moves]
    draft = BundleDraft(
        name=f"axes_sampler_{context.world.name}_{seed}", world=context.world.name,
        request=user_request(base, PERSONAS[cell["persona"]] + WORDINGS[cell["wording"]](parts)), initial_state=base.initial_state,
        split=base.split,
        provenance={
            **provenance("axes_sampler", seed, base, family=[move.call.name for move in moves], wording=_wording(cell)), "axes": cell,
        },
    )  # fmt: skip
    return with_reference(context.world, draft, (tuple(move.call for move in moves),))


def _wording(cell: Cell) -> str:
    return "/".join(cell[axis] for axis in ("form", "wording", "persona"))
