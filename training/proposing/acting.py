"""Acts sequences of calls out in a world, and writes references from what really happened. Runs worlds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ledger.bundle import BundleDraft
from ledger.canonical import digest, parse
from ledger.errors import CanonicalError, ProposalError
from training.worlds import Change, Observation, ToolCall, World
from training.worlds.difference import differences

Turns = tuple[tuple[ToolCall, ...], ...]
VERIFIER = "end_state"
"""The verifier that a proposed draft names in its spec, unless it names another."""
SEED = 0
"""References are acted out from this seed; that others lead to the same end is for a check to say."""


@dataclass(frozen=True)
class Step:
    """One call as it happened: its user turn, what was answered, and the material state after it."""

    turn: int
    call: ToolCall
    observation: Observation
    material: Any


@dataclass(frozen=True)
class Acted:
    """A sequence of calls as it happened.

    Attributes:
        start: the material state at the request.
        steps: the calls in order.
        state: the world's state at the end.
    """

    start: Any
    steps: tuple[Step, ...]
    state: Any

    @property
    def end(self) -> Any:
        """The material state at the end."""
        return self.steps[-1].material if self.steps else self.start

    @cached_property
    def end_digest(self) -> str:
        """Hex SHA-256 of the material state at the end."""
        return digest(self.end, allow_nul=True)

    def changes(self, index: int) -> tuple[Change, ...]:
        """What step `index` (0-based) changed in the material state."""
        return differences(self.steps[index - 1].material if index else self.start, self.steps[index].material).changes

    @cached_property
    def changing(self) -> tuple[int, ...]:
        """Indices of the steps that changed the material state."""
        return tuple(index for index in range(len(self.steps)) if self.changes(index))

    @property
    def refused(self) -> Step | None:
        """The first step that the world refused, or None."""
        return next((step for step in self.steps if is_refused(step.observation)), None)


def is_refused(observation: Observation) -> bool:
    """Whether a world refused a call: by an error class or, as generated worlds do, by an object with `success` false or an `error`."""
    if observation.error_class is not None:
        return True
    try:
        answer = parse(observation.content)
    except CanonicalError:
        return False
    return isinstance(answer, Mapping) and (answer.get("success") is False or isinstance(answer.get("error"), str))


def act(world: World[Any], draft: BundleDraft, turns: Sequence[Sequence[ToolCall]], *, seed: int = SEED) -> Acted:
    """What happens when `turns` are called in order from the draft's initial state.

    Raises:
        WorldFailed: the world broke.
        BundleError: the draft has no initial state of this world.
    """
    state = world.reset(draft, seed=seed)
    start = world.material(world.view(state))
    steps = []
    for turn, calls in enumerate(turns):
        for call in calls:
            state, observation = world.call(state, call)
            steps.append(Step(turn, call, observation, world.material(world.view(state))))
    return Acted(start, tuple(steps), state)


def calls_of(turns: Any) -> Turns:
    """The calls in a reference's `turns`.

    Raises:
        ProposalError: they are no lists of objects with a name and arguments.
    """
    try:
        return tuple(tuple(ToolCall(call["name"], call["arguments"]) for call in calls) for calls in turns)
    except (KeyError, TypeError) as error:
        raise ProposalError(f"turns must be lists of {{name, arguments}}; seen {str(turns)[:200]}") from error


def as_json(turns: Sequence[Sequence[ToolCall]]) -> list[list[dict[str, Any]]]:
    """The calls as a reference holds them."""
    return [[{"name": call.name, "arguments": dict(call.arguments)} for call in calls] for calls in turns]


def with_reference(world: World[Any], draft: BundleDraft, turns: Turns, *, others: Sequence[tuple[str, Turns]] = ()) -> BundleDraft:
    """The draft with a reference that was acted out: end state, equivalent paths, and wrong neighbours with what they break.

    Neighbours leave out or repeat one call that changes something, or are given in `others`; whether one is equivalent or wrong is seen
    from the end state that it leads to. Other orders are only looked at for equivalents, since a request need not say that order matters.

    Args:
        world: the draft's world.
        draft: the draft, its reference not yet written.
        turns: the calls that solve it.
        others: further candidates by name.
    Raises:
        ProposalError: a call was refused, or nothing changed, so that doing nothing would pass.
    """
    acted = act(world, draft, turns)
    if (refused := acted.refused) is not None:
        answer = refused.observation.error_class or refused.observation.content[:100]
        raise ProposalError(f"refused: {refused.call.name} answers {answer} in draft {draft.name!r}")
    if digest(acted.start, allow_nul=True) == acted.end_digest:
        raise ProposalError(f"nothing to do: the reference of draft {draft.name!r} ends where it began")
    equivalent, wrong = judged(world, draft, acted, [*others, *_neighbours(turns, acted)])
    reordered, _ = judged(world, draft, acted, _orders(turns, acted))
    known = [item["turns"] for item in equivalent]
    equivalent = [*(item for item in reordered if item["turns"] not in known), *equivalent]
    reference = {"turns": as_json(turns), "end_state": acted.end, "equivalent": equivalent, "wrong": wrong}
    return replace(draft, reference=reference, spec={"verifier": VERIFIER, **draft.spec})


def judged(
    world: World[Any], draft: BundleDraft, acted: Acted, candidates: Sequence[tuple[str, Turns]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The candidates that lead to the reference's end state without a refused call, and those that lead elsewhere with what they break."""
    equivalent: list[dict[str, Any]] = []
    wrong: list[dict[str, Any]] = []
    seen = {digest(as_json([[step.call for step in acted.steps]]), allow_nul=True)}
    for name, turns in candidates:
        key = digest(as_json([[call for calls in turns for call in calls]]), allow_nul=True)
        if key in seen:
            continue
        seen.add(key)
        other = act(world, draft, turns)
        if other.end_digest != acted.end_digest:
            wrong.append({"name": name, "turns": as_json(turns), "breaks": broken_parts(acted.end, other.end)})
        elif other.refused is None:
            equivalent.append({"name": name, "turns": as_json(turns)})
    return equivalent, wrong


def broken_parts(expected: Any, seen: Any) -> list[str]:
    """The top-level parts in which two material states differ, which are the conditions of the verifier `end_state`."""
    if not (isinstance(expected, Mapping) and isinstance(seen, Mapping)):
        return ["state"]
    return sorted(part for part in expected.keys() | seen.keys() if differences(expected.get(part), seen.get(part)).changes)


def _orders(turns: Turns, acted: Acted) -> list[tuple[str, Turns]]:
    flat = [(step.turn, step.call) for step in acted.steps]
    writes = [flat[index] for index in acted.changing]
    reads = [item for index, item in enumerate(flat) if index not in acted.changing]
    return [
        ("writes_only", _by_turn(writes, len(turns))),
        ("reads_first", _by_turn([*reads, *writes], len(turns))),
        ("writes_backwards", _by_turn([*reads, *reversed(writes)], len(turns))),
    ]


def _neighbours(turns: Turns, acted: Acted) -> Iterator[tuple[str, Turns]]:
    flat = [(step.turn, step.call) for step in acted.steps]
    for index in acted.changing:
        name = f"{index + 1}_{flat[index][1].name}"
        yield f"without_{name}", _by_turn([*flat[:index], *flat[index + 1 :]], len(turns))
        yield f"twice_{name}", _by_turn([*flat[: index + 1], *flat[index:]], len(turns))


def _by_turn(flat: Sequence[tuple[int, ToolCall]], count: int) -> Turns:
    return tuple(tuple(call for turn, call in flat if turn == wanted) for wanted in range(count))
