"""Neighbours of a task's reference that are wrong in one place and show in the end state."""

from collections.abc import Iterator
from typing import Any

from ledger.bundle import BundleDraft
from training.worlds import AssistantTurn
from training.worlds.bfcl.world import Bfcl
from training.worlds.reference_scripts import Turns, reference_turns, replay, script


def wrong(draft: BundleDraft, world: Bfcl) -> dict[str, list[AssistantTurn]]:
    """Policies that miss the task, by what is wrong with them; empty when no single change shows in the end state."""
    return {label: script(turns) for label, turns in wrong_turns(draft, world).items()}


def wrong_turns(draft: BundleDraft, world: Bfcl) -> dict[str, Turns]:
    """The calls of the wrong policies: `drop_call` and `change_argument`, each replayed to a material end state that differs."""
    right = reference_turns(draft)
    expected = world.material(world.view(replay(world, draft, right).end))
    found: dict[str, Turns] = {}
    for label, candidates in (("drop_call", _dropped(right)), ("change_argument", _changed(right))):
        for turns in candidates:
            if world.material(world.view(replay(world, draft, turns).end)) != expected:
                found[label] = turns
                break
    return found


def _places(turns: Turns) -> Iterator[tuple[int, int]]:
    """From the last call to the first, because late changes are the least likely to be undone."""
    for turn in reversed(range(len(turns))):
        for index in reversed(range(len(turns[turn]))):
            yield turn, index


def _dropped(turns: Turns) -> Iterator[Turns]:
    for turn, index in _places(turns):
        yield [[call for at, call in enumerate(calls) if (row, at) != (turn, index)] for row, calls in enumerate(turns)]


def _changed(turns: Turns) -> Iterator[Turns]:
    for turn, index in _places(turns):
        call = turns[turn][index]
        for name, value in call["arguments"].items():
            other = _other(value)
            if other is None:
                continue
            altered = {"name": call["name"], "arguments": {**call["arguments"], name: other}}
            yield [[altered if (row, at) == (turn, index) else old for at, old in enumerate(calls)] for row, calls in enumerate(turns)]


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return f"{value}_x"
    return None
