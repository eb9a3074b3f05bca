"""Scripted policies made from a task's reference, for any world: the reference itself, and neighbours that must fail. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ledger.bundle import BundleDraft
from ledger.errors import BundleError
from training.verifiers import TraceStep
from training.worlds import AssistantTurn, ToolCall, World

Turns = Sequence[Sequence[Mapping[str, Any]]]
"""One list of `{"name", "arguments"}` a user turn."""
DONE = "Done."
CANNOT = "I cannot do that with the functions and the information that I have."


@dataclass(frozen=True)
class Replay:
    """What happened when calls were carried out from a task's initial state."""

    start: Any
    end: Any
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


def replay(world: World[Any], draft: BundleDraft, turns: Turns, *, seed: int = 0) -> Replay:
    """Start, end and trace of carrying out `turns` after a reset with `seed`."""
    start = state = world.reset(draft, seed=seed)
    trace: list[TraceStep] = []
    for turn, calls in enumerate(turns):
        for call in calls:
            made = ToolCall(call["name"], call["arguments"], f"call_{len(trace)}")
            state, observation = world.call(state, made)
            trace.append(TraceStep(turn, made, observation))
    return Replay(start, state, tuple(trace))


def with_end_state(draft: BundleDraft, world: World[Any]) -> BundleDraft:
    """The draft with its reference's end state filled in: the material of the state after the reference calls."""
    turns = reference_turns(draft)
    end = replay(world, draft, turns).end
    return replace(draft, reference={**(draft.reference or {}), "turns": turns, "end_state": world.material(world.view(end))})


def script(turns: Turns) -> list[AssistantTurn]:
    """The model answers that make these calls and end each user turn with a text."""
    answers: list[AssistantTurn] = []
    for calls in turns:
        answers.extend(AssistantTurn(None, ((call["name"], json.dumps(call["arguments"])),)) for call in calls)
        answers.append(AssistantTurn(DONE if calls else CANNOT))
    return answers


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


def candidates(draft: BundleDraft, kind: str) -> dict[str, Turns]:
    """The other paths that a reference lists, by name.

    Args:
        draft: the task.
        kind: `equivalent`, which a verifier must accept, or `wrong`, which it must reject.
    """
    return {path["name"]: path["turns"] for path in (draft.reference or {}).get(kind, ())}


SCRIPTS = {"oracle": oracle, "gives_up": gives_up, "drops_last_call": drops_last_call}
"""Policy name to what it answers in a task, turn by turn."""
