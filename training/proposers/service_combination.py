"""Combines two tasks into one with a joint end state: of one world in two turns or one message, or of two services side by side."""

from collections.abc import Mapping
from random import Random
from typing import Any

from ledger.bundle import BundleDraft, Split
from ledger.canonical import digest
from ledger.errors import ProposalError
from training.proposers import AskModel, ProposalContext, Proposed
from training.proposing.acting import Turns, calls_of, with_reference
from training.proposing.drafting import base_drafts, drafted, generator, names_of, provenance
from training.worlds import ToolCall, World
from training.worlds.combined.world import SEPARATOR, Combined

Pair = tuple[BundleDraft, BundleDraft]
_STRICTNESS: tuple[Split, ...] = ("train", "validation", "test")
_JOINTS = {
    "two_things": "I have two things for you.\n\nFirst: {}\n\nSecond: {}",
    "also": "{}\n\nWhen that is done, there is also this: {}",
}


def service_combination(
    context: ProposalContext, n: int, *, rng: Random | None = None, ask: AskModel | None = None, turns: bool | None = None
) -> Proposed:
    """Drafts that are solved only when two tasks are.

    In a combined world each task is of one of its services, and every service has one. In any other world the two tasks must begin in the
    same state; the second is then done from where the first ended, and pairs that stand in each other's way are dropped.

    Args:
        context: its drafts, with references, are combined.
        n: how many.
        rng: the only source of randomness.
        ask: not used.
        turns: ask in two user turns; in one message when False; drawn when None. Tasks of several turns always keep them.
    Raises:
        ProposalError: no two drafts can be combined.
    Source: our own.
    """
    world = context.world
    if isinstance(world, Combined):
        pairs = _of_services(world, context)
    else:
        pairs = _of_one_state([draft for draft in base_drafts(context, "service_combination", least=2) if draft.reference is not None])
    if not pairs:
        raise ProposalError(
            f"no two of {len(context.drafts)} drafts can be combined in world {world.name!r}; needed: references, and the same initial"
            " state or services side by side"
        )

    def make(own: Random, seed: int) -> BundleDraft:
        return _joined(world, own.choice(pairs), own, seed, own.random() < 0.5 if turns is None else turns)

    return drafted(n, generator(rng), make)


def _of_services(world: Combined, context: ProposalContext) -> list[Pair]:
    first, second, *more = world.services.values()
    if more:
        raise ProposalError(f"{len(world.services)} services; allowed: two")
    solved = [draft for draft in context.drafts if draft.reference is not None]
    return [(a, b) for a in solved for b in solved if (a.world, b.world) == (first.name, second.name) and a is not b]


def _of_one_state(drafts: list[BundleDraft]) -> list[Pair]:
    states = {id(draft): digest(draft.initial_state, allow_nul=True) for draft in drafts}
    return [(a, b) for a in drafts for b in drafts if a is not b and states[id(a)] == states[id(b)]]


def _joined(world: World[Any], pair: Pair, own: Random, seed: int, in_turns: bool) -> BundleDraft:
    first, second = pair
    solutions: tuple[Turns, Turns] = (_solution(first), _solution(second))
    asked = [list(draft.request["turns"]) for draft in pair]
    wording = "turns"
    if isinstance(world, Combined):
        services = tuple(world.services)
        solutions = (_renamed(solutions[0], services[0]), _renamed(solutions[1], services[1]))
    if in_turns or any(len(each) != 1 for each in asked):
        requested, solution = [*asked[0], *asked[1]], (*solutions[0], *solutions[1])
    else:
        wording = own.choice(sorted(_JOINTS))
        text = _JOINTS[wording].format(*("\n".join(message["content"] for message in each[0]) for each in asked))
        requested, solution = [[{"role": "user", "content": text}]], ((*solutions[0][0], *solutions[1][0]),)
    system = "\n".join(dict.fromkeys(str(said) for draft in pair if (said := draft.request.get("system")))) or None
    extra = {} if isinstance(world, Combined) else {**second.request, **first.request}
    draft = BundleDraft(
        name=f"service_combination_{world.name}_{seed}", world=world.name,
        request={**extra, "system": system, "turns": requested},
        initial_state=_state(world, pair, len(requested)), spec={"parts": [draft.name for draft in pair]},
        split=max((draft.split for draft in pair), key=_STRICTNESS.index),
        provenance={
            **provenance("service_combination", seed, pair, wording=wording, family=[_family(draft) for draft in pair]),
            "parts": [{key: draft.provenance.get(key) for key in ("family", "wording")} | {"names": names_of(draft)} for draft in pair],
        },
    )  # fmt: skip
    return with_reference(world, draft, solution, others=_halves(solutions, solution))


def _state(world: World[Any], pair: Pair, count: int) -> Any:
    if not isinstance(world, Combined):
        return pair[0].initial_state
    state: dict[str, Any] = {}
    first_turn = 0
    for service, draft in zip(world.services, pair, strict=True):
        extra = {key: value for key, value in draft.request.items() if key not in ("system", "turns")}
        turns = len(draft.request["turns"])
        state[service] = {"state": draft.initial_state, "request": extra, "first_turn": min(first_turn, count - 1), "turns": turns}
        first_turn += turns
    return state


def _halves(solutions: tuple[Turns, Turns], solution: Turns) -> list[tuple[str, Turns]]:
    """Each task done alone, which is not enough, and, where both are in one message, the second before the first."""
    if len(solution) == 1:
        first, second = solutions[0][0], solutions[1][0]
        return [("first_only", (first,)), ("second_only", (second,))]
    empty = ((),)
    return [
        ("first_only", (*solutions[0], *(empty * len(solutions[1])))),
        ("second_only", (*(empty * len(solutions[0])), *solutions[1])),
    ]


def _solution(draft: BundleDraft) -> Turns:
    return calls_of((draft.reference or {}).get("turns"))


def _renamed(turns: Turns, service: str) -> Turns:
    return tuple(tuple(ToolCall(f"{service}{SEPARATOR}{call.name}", call.arguments) for call in calls) for calls in turns)


def _family(draft: BundleDraft) -> Any:
    found: Mapping[str, Any] = draft.provenance
    return found.get("family", [call.name for calls in _solution(draft) for call in calls])
