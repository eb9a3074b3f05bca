"""Scripted policies made from a task's reference: one that is right, and neighbours that are wrong in one place."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ledger.bundle import BundleDraft
from ledger.errors import BundleError
from training.verifiers import TraceStep
from training.worlds import AssistantTurn, ToolCall
from training.worlds.bfcl.world import Bfcl, BfclState

Turns = Sequence[Sequence[Mapping[str, Any]]]
DONE = "Done."
CANNOT = "I cannot do that with the functions and the information that I have."


@dataclass(frozen=True)
class Replay:
    """What happened when calls were carried out from a task's initial state."""

    start: BfclState
    end: BfclState
    trace: tuple[TraceStep, ...]


def reference_turns(draft: BundleDraft) -> Turns:
    """The reference calls of each user turn.

    Raises:
        BundleError: the draft has no reference.
    """
    if draft.reference is None:
        raise BundleError(f"bundle {draft.name!r} has no reference; allowed: a reference with one list of calls a user turn")
    turns: Turns = draft.reference["turns"]
    return turns


def replay(world: Bfcl, draft: BundleDraft, turns: Turns) -> Replay:
    """Start, end and trace of carrying out `turns` (one list of `{"name", "arguments"}` a user turn)."""
    start = state = world.reset(draft, seed=0)
    trace: list[TraceStep] = []
    for turn, calls in enumerate(turns):
        for call in calls:
            made = ToolCall(call["name"], call["arguments"], f"call_{len(trace)}")
            state, observation = world.call(state, made)
            trace.append(TraceStep(turn, made, observation))
    return Replay(start, state, tuple(trace))


def with_end_state(draft: BundleDraft, world: Bfcl) -> BundleDraft:
    """The draft with its reference's end state filled in: the material of the state after the reference calls."""
    turns = reference_turns(draft)
    end = replay(world, draft, turns).end
    return replace(draft, reference={**(draft.reference or {}), "turns": turns, "end_state": world.material(world.view(end))})


def oracle(draft: BundleDraft) -> list[AssistantTurn]:
    """The right policy: in each user turn one message a reference call, then a text message that ends the turn."""
    return script(reference_turns(draft))


def gives_up(draft: BundleDraft) -> list[AssistantTurn]:
    """A policy that answers every user turn with a sentence and never calls a tool."""
    return script([[] for _ in draft.request["turns"]])


def drops_last_call(draft: BundleDraft) -> list[AssistantTurn]:
    """The reference without its very last call."""
    turns = [list(calls) for calls in reference_turns(draft)]
    last = max((n for n, calls in enumerate(turns) if calls), default=None)
    if last is not None:
        turns[last].pop()
    return script(turns)


def script(turns: Turns) -> list[AssistantTurn]:
    """The model answers that make these calls and end each user turn with a text."""
    answers: list[AssistantTurn] = []
    for calls in turns:
        answers.extend(AssistantTurn(None, ((call["name"], json.dumps(call["arguments"])),)) for call in calls)
        answers.append(AssistantTurn(DONE if calls else CANNOT))
    return answers


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


SCRIPTS = {"oracle": oracle, "gives_up": gives_up, "drops_last_call": drops_last_call}
"""Policy name to what it answers in a task, turn by turn."""
