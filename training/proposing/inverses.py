"""Legal calls that undo other calls, found by trying. Runs worlds."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from ledger.bundle import BundleDraft
from ledger.canonical import digest
from training.proposing.acting import is_refused
from training.proposing.arguments import Guesser, Leaf, leaves_of, nested, pools, tool_name
from training.proposing.exploring import Move
from training.proposing.tool_graph import outputs
from training.worlds import Change, ToolCall, World

_TRIES_A_TOOL = 12


def inverse_of(world: World[Any], draft: BundleDraft, before: Any, move: Move, *, rng: Random) -> ToolCall | None:
    """A call that leads from the move's state back to the material state of `before`, or None where none was found.

    Tried are the same call with the values that it replaced, then every tool with values from the call, its answer and what it changed.
    """
    wanted = digest(world.material(world.view(before)), allow_nul=True)
    for call in _candidates(world, draft, move, rng):
        after, observation = world.call(move.state, call)
        if not is_refused(observation) and digest(world.material(world.view(after)), allow_nul=True) == wanted:
            return call
    return None


def _candidates(world: World[Any], draft: BundleDraft, move: Move, rng: Random) -> Iterator[ToolCall]:
    yield ToolCall(move.call.name, _put_back(move.call.arguments, move.changes))
    known = pools(dict(move.call.arguments), *({output.place[-1]: output.value} for output in outputs(move.observation)))
    for change in move.changes:
        for value in (change.before, change.after):
            for name, values in pools({change.path.rpartition("/")[2]: value}).items():
                known.setdefault(name, []).extend(item for item in values if item not in known.get(name, []))
    guesser = Guesser(rng)
    for tool in world.tools(draft, turn=0):
        for _ in range(_TRIES_A_TOOL):
            yield ToolCall(tool_name(tool), guesser.draw(tool, known)[0])


def _put_back(arguments: Mapping[str, Any], changes: Sequence[Change]) -> dict[str, Any]:
    """The arguments with every value that a change wrote replaced by what was there."""
    leaves: dict[Leaf, Any] = dict(leaves_of(arguments))
    for path, value in leaves.items():
        fitting = [change for change in changes if change.after == value and type(change.after) is type(value)]
        named = [change for change in fitting if change.path.rpartition("/")[2] == path[-1]]
        if named or fitting:
            leaves[path] = (named or fitting)[0].before
    for change in changes:
        # What a world writes in its own words, such as "now", is told by the name of its column.
        for path in leaves:
            if path[-1] == change.path.rpartition("/")[2]:
                leaves[path] = change.before
    return nested(leaves)
