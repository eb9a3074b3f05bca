"""Finds legal calls in a world that nobody has described beyond its tool schemas. Runs worlds."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from ledger.bundle import BundleDraft
from ledger.errors import ProposalError
from training.proposing.acting import SEED, is_refused
from training.proposing.arguments import Guesser, pools, tool_name
from training.worlds import Change, Observation, ToolCall, World
from training.worlds.difference import differences, is_within

TRIES = 300
_READS_ENOUGH = 6
_TRIES_A_TOOL = 20


@dataclass(frozen=True)
class Move:
    """A legal call that changes something: the call, the answer, the state after it, and what changed in the material state."""

    call: ToolCall
    observation: Observation
    state: Any
    changes: tuple[Change, ...]


def is_plain(change: Change) -> bool:
    """Whether a change puts one plain value in the place of another, so that a request can say it as a wanted state."""
    return isinstance(change.before, str | int | float) and isinstance(change.after, str | int | float)


class Explorer:
    """Tries calls in one task's world, each from a given state, and learns which arguments it accepts.

    Attributes:
        refusals: error class of refused calls to their number.
    """

    def __init__(self, world: World[Any], draft: BundleDraft, rng: Random, *, tries: int = TRIES) -> None:
        self.world, self.draft, self.rng, self.tries = world, draft, rng, tries
        self.tools = list(world.tools(draft, turn=0))
        self.start = world.reset(draft, seed=SEED)
        self.refusals: Counter[str] = Counter()
        self._guesser = Guesser(rng)
        self._idle: Counter[str] = Counter()

    def move(self, state: Any, *, tools: Sequence[str] = (), avoid: Sequence[str] = (), plain: bool = False) -> Move:
        """A legal call that changes the material state at `state`.

        Args:
            state: a state of the world.
            tools: names of the tools to choose from; all when empty.
            avoid: pointers into the material state that the call must leave alone.
            plain: every change must put one plain value in the place of another.
        Raises:
            ProposalError: none was found in `tries` tries.
        """
        view = self.world.view(state)
        before, known = self.world.material(view), pools(view)
        allowed = [tool for tool in self.tools if not tools or tool_name(tool) in tools]
        if not allowed:
            raise ProposalError(f"no tool among {sorted(tools)}; world {self.world.name!r} has {[tool_name(t) for t in self.tools]}")
        for tool in self._order(allowed):
            arguments, origins = self._guesser.draw(tool, known)
            call = ToolCall(tool_name(tool), arguments)
            after, observation = self.world.call(state, call)
            if is_refused(observation):
                self.refusals[observation.error_class or "answered with an error"] += 1
                continue
            self._guesser.accepted(call.name, origins)
            changes = differences(before, self.world.material(self.world.view(after))).changes
            if not changes:
                self._idle[call.name] += 1
            elif plain and not all(is_plain(change) for change in changes):
                continue
            elif not any(is_within(change.path, place) or is_within(place, change.path) for change in changes for place in avoid):
                self._idle[call.name] = -self.tries
                return Move(call, observation, after, changes)
        raise ProposalError(
            f"no legal call: none of {self.tries} changed something new in world {self.world.name!r}; refused: {dict(self.refusals)}"
        )

    def _order(self, allowed: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Which tool each try goes to: some tries a tool, tools in a drawn order, those that only ever read left out after a while."""
        left = self.tries
        while left > 0:
            writing = [tool for tool in allowed if self._idle[tool_name(tool)] < _READS_ENOUGH]
            for tool in self.rng.sample(writing or allowed, len(writing or allowed)):
                yield from [tool] * min(_TRIES_A_TOOL, left)
                left -= _TRIES_A_TOOL
