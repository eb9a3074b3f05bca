"""Paths through a world: calls in order with their user turns, and what the world made of them. Runs worlds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.run import Broken, guarded
from ledger.canonical import digest
from training.verifiers import TraceStep
from training.worlds import ToolCall, World

Turns = Sequence[Sequence[Mapping[str, Any]]]
"""One list of `{"name", "arguments"}` a user turn."""


@dataclass(frozen=True)
class Step:
    """One call of a path, in user turn `turn` (0-based)."""

    turn: int
    name: str
    arguments: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """The step as a JSON object."""
        return {"turn": self.turn, "name": self.name, "arguments": dict(self.arguments)}


@dataclass(frozen=True)
class Walk:
    """What came of a path.

    Attributes:
        steps: the path.
        states: before the first call and after each call that was carried out.
        trace: the calls with their observations.
        broken: what the world raised, after which nothing was called any more; None when it held.
    """

    steps: tuple[Step, ...]
    states: tuple[Any, ...]
    trace: tuple[TraceStep, ...]
    broken: Broken | None = None


def steps_of(turns: Turns) -> tuple[Step, ...]:
    """The path that lists of calls a turn describe."""
    return tuple(Step(turn, str(call["name"]), call["arguments"]) for turn, calls in enumerate(turns) for call in calls)


def walk(world: World[Any], start: Any, steps: Sequence[Step], *, known: Walk | None = None) -> Walk:
    """What comes of a path from state `start`.

    Args:
        known: another walk from the same start; the calls that both begin with are taken from it, since states are values.
    """
    shared = 0
    if known is not None:
        while shared < min(len(steps), len(known.trace)) and steps[shared] == known.steps[shared]:
            shared += 1
    states = [start] if known is None else list(known.states[: shared + 1])
    trace = [] if known is None else list(known.trace[:shared])
    for step in steps[shared:]:
        call = ToolCall(step.name, step.arguments, f"call_{len(trace)}")
        made = guarded(lambda state=states[-1], call=call: world.call(state, call))  # type: ignore[misc]
        if isinstance(made, Broken):
            return Walk(tuple(steps), tuple(states), tuple(trace), made)
        states.append(made[0])
        trace.append(TraceStep(step.turn, call, made[1]))
    return Walk(tuple(steps), tuple(states), tuple(trace))


def trace_digest(world: World[Any], walked: Walk) -> str:
    """Hex SHA-256 over every observation and the digest of every state of a walk."""
    seen = [[step.observation.content, step.observation.error_class] for step in walked.trace]
    return digest(
        [seen, [world.digest(state) for state in walked.states], None if walked.broken is None else walked.broken.error], allow_nul=True
    )
