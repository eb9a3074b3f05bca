"""Starts from a healthy state, breaks it by legal calls that can be undone, and asks to restore it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from ledger.bundle import BundleDraft
from ledger.canonical import canonical_bytes, digest, parse
from ledger.errors import BundleError, ProposalError, WorldFailed
from training.proposers import AskModel, ProposalContext, Proposed
from training.proposing.acting import SEED, act, with_reference
from training.proposing.drafting import base_drafts, drafted, generator, provenance
from training.proposing.exploring import Explorer, Move
from training.proposing.inverses import inverse_of
from training.proposing.wordings import goal_of, user_request
from training.worlds import Change, ToolCall, World
from training.worlds.difference import differences, pointer

_MOVES_A_STEP = 12
_OPENINGS = {
    "mistake": "Somebody made changes here by mistake. This is how it should be:",
    "audit": "An audit compared the records with the approved list below. Some entries no longer agree with it:",
    "restore": "Please restore the following, where it is not so already:",
}


def healthy_inversion(
    context: ProposalContext, n: int, *, rng: Random | None = None, ask: AskModel | None = None,
    least: int = 1, most: int = 3, sound: int = 2,
) -> Proposed:  # fmt: skip
    """Drafts that begin in a broken state and whose reference is the inverse path, found while breaking it.

    The request lists how things should be: what was broken, among places that are sound. Calls without a legal inverse, such as a mail
    that was sent, break nothing here.

    Args:
        context: its drafts give the healthy states.
        n: how many.
        rng: the only source of randomness.
        ask: not used.
        least, most: calls that break the state, 1 or more.
        sound: places that are listed though they are sound, 0 or more.
    Raises:
        ProposalError: no draft to start from, a world that cannot begin in a state that it was brought to, or parameters out of range.
    Source: our own.
    """
    if not 1 <= least <= most or sound < 0:
        raise ProposalError(f"{least} to {most} calls and {sound} sound places; allowed: 1 or more, in order, and 0 or more")
    bases = base_drafts(context, "healthy_inversion")
    started_in(context.world, bases[0], context.world.reset(bases[0], seed=SEED))

    def make(own: Random, seed: int) -> BundleDraft:
        base = own.choice(bases)
        steps = _broken(context.world, base, own, own.randint(least, most))
        broken = started_in(context.world, base, steps[-1][0].state)
        return _asked(context.world, base, broken, steps, (own, seed, sound))

    return drafted(n, generator(rng), make)


def started_in(world: World[Any], base: BundleDraft, state: Any) -> BundleDraft:
    """The draft with an initial state from which the world begins in `state`, without what does not count, such as a log of calls.

    Raises:
        ProposalError: the world cannot begin in a state that it was brought to.
    """
    view = parse(canonical_bytes(world.view(state), allow_nul=True))
    wanted = digest(world.material(view), allow_nul=True)
    healthy = world.view(world.reset(base, seed=SEED))
    for part in sorted(view) if isinstance(view, Mapping) and isinstance(healthy, Mapping) else []:
        trial = {**view, part: healthy[part]} if part in healthy else view
        if digest(world.material(trial), allow_nul=True) == wanted:
            view = trial
    reasons = []
    for placed in _placed(base.initial_state, view):
        draft = replace(base, initial_state=placed)
        try:
            if digest(world.material(world.view(world.reset(draft, seed=SEED))), allow_nul=True) == wanted:
                return draft
            reasons.append("it begins in another")
        except (BundleError, WorldFailed, LookupError, TypeError, ValueError) as error:
            reasons.append(str(error))
    raise ProposalError(f"cannot begin there: world {world.name!r} does not begin in a state that it was brought to, {reasons[0]}")


def _placed(initial: Any, view: Any) -> Iterator[Any]:
    """Where a view may go in an initial state: it is the state, or it is one of its parts beside others, such as the name of a class."""
    yield view
    if isinstance(initial, Mapping):
        yield from ({**initial, key: view} for key, part in initial.items() if isinstance(part, Mapping))


def _broken(world: World[Any], base: BundleDraft, own: Random, count: int) -> list[tuple[Move, ToolCall]]:
    """Breaking calls, each with the call that undoes it."""
    explorer = Explorer(world, base, own)
    state, touched, steps = explorer.start, list[str](), list[tuple[Move, ToolCall]]()
    for _ in range(_MOVES_A_STEP * count):
        move = explorer.move(state, avoid=touched)
        undo = inverse_of(world, base, state, move, rng=own)
        if undo is None:
            continue
        steps.append((move, undo))
        state = move.state
        touched += [change.path for change in move.changes]
        if len(steps) == count:
            return steps
    raise ProposalError(f"no inverse: {len(steps)} of {count} breaking calls could be undone in world {world.name!r}")


def _asked(
    world: World[Any], base: BundleDraft, broken: BundleDraft, steps: list[tuple[Move, ToolCall]], draws: tuple[Random, int, int]
) -> BundleDraft:
    own, seed, sound = draws
    healthy = world.material(world.view(world.reset(base, seed=SEED)))
    turns = (tuple(undo for _, undo in reversed(steps)),)
    acted = act(world, broken, turns)
    if acted.end_digest != digest(healthy, allow_nul=True):
        raise ProposalError(f"not restored: the inverse path of {broken.name!r} does not lead back to the healthy state")
    repaired = differences(acted.start, healthy).changes
    goals = [goal_of(change) for change in repaired] + [goal_of(change) for change in _sound(healthy, repaired, own, sound)]
    own.shuffle(goals)
    wording = own.choice(sorted(_OPENINGS))
    text = f"{_OPENINGS[wording]}\n" + "\n".join(f"- {goal}" for goal in goals) + "\nPut right what differs and change nothing else."
    draft = replace(
        broken, name=f"healthy_inversion_{world.name}_{seed}", request=user_request(base, text), reference=None, hint=None,
        spec={"repaired": [change.path for change in repaired]},
        provenance=provenance("healthy_inversion", seed, base, family=[undo.name for _, undo in steps], wording=wording),
    )  # fmt: skip
    return with_reference(world, draft, turns)


def _sound(healthy: Any, repaired: tuple[Change, ...], own: Random, count: int) -> list[Change]:
    """Places that are as they should be, in the columns of those that are not."""
    columns = {change.path.rpartition("/")[2] for change in repaired}
    broken = {change.path for change in repaired}
    every = [change for change in _plain_places(healthy, "") if change.path not in broken and change.path.rpartition("/")[2] in columns]
    return own.sample(every, min(count, len(every)))


def _plain_places(value: Any, path: str) -> list[Change]:
    if isinstance(value, Mapping):
        return [place for key, item in sorted(value.items()) for place in _plain_places(item, path + pointer(str(key)))]
    return [Change(path, value, value)] if isinstance(value, str | int | float) else []
