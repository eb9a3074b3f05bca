"""Chains of calls that unlock one another along a tool graph, acted out as they are put together. Runs worlds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from random import Random
from typing import Any

from ledger.bundle import BundleDraft
from ledger.errors import ProposalError
from training.proposing.acting import SEED, is_refused
from training.proposing.arguments import Guesser, Leaf, leaves_of, nested, parameters, singular, tool_name
from training.proposing.tool_graph import USER, Edge, Output, ToolGraph, outputs, scalars
from training.proposing.wordings import text
from training.worlds import ToolCall, World
from training.worlds.difference import differences


@dataclass(frozen=True)
class Link:
    """Argument `parameter` of call `call` holds what `output` of call `source` said, or the user where `source` is None; 0-based."""

    call: int
    parameter: str
    source: int | None
    output: str

    def as_json(self) -> dict[str, Any]:
        """The link as a spec holds it."""
        return {"call": self.call, "parameter": self.parameter, "source": self.source, "output": self.output}


@dataclass
class Chain:
    """Calls in the order in which they were acted out, with what fed each.

    Attributes:
        calls, answers: what was called and what each call said, as (place in the answer, value).
        links: what fed which argument.
        words: call to argument path to the words that a request uses for a fed value.
        changes: whether each call changed the material state.
        depths: calls on the longest path that ends at each call.
    """

    calls: list[ToolCall] = field(default_factory=list)
    answers: list[list[Output]] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    words: dict[int, dict[Leaf, str]] = field(default_factory=dict)
    changes: list[bool] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Goal:
    """A tool to end a chain with, and an edge into an optional argument that makes the chain deeper, or None."""

    tool: str
    extra: Edge | None
    depth: int


def goals(graph: ToolGraph) -> list[Goal]:
    """Every way to end a chain with a call that changes something."""
    found = []
    for node in graph.tools:
        if node.changes and (depth := graph.depth(node.name)):
            found.append(Goal(node.name, None, depth))
            optional = [edge for edge in graph.edges if edge.target == node.name and edge.parameter not in node.fed]
            deeper = [(edge, graph.depth(edge.source) + 1) for edge in optional if edge.source != node.name]
            found += [Goal(node.name, edge, max(depth, below)) for edge, below in deeper if below > 1]
    return found


class Weaver:
    """Puts chains together in one task's world."""

    def __init__(self, world: World[Any], draft: BundleDraft, graph: ToolGraph, rng: Random) -> None:
        self.world, self.graph, self.rng = world, graph, rng
        self.tools = {tool_name(tool): tool for tool in world.tools(draft, turn=0)}
        self.state = world.reset(draft, seed=SEED)
        self.given = list(scalars(world.view(self.state)))
        self.chain = Chain()
        self._rows: dict[tuple[int, str], Leaf] = {}

    def end_with(self, goal: Goal) -> int:
        """Index of the call that reaches a goal, after those that unlock it.

        Raises:
            ProposalError: a call was refused, no answer holds what is needed, or the goal was reached before.
        """
        self._rows.clear()
        fed = {edge.parameter: edge for edge in [self._choice(goal.tool, name) for name in self.graph.node(goal.tool).fed]}
        if goal.extra is not None:
            fed[goal.extra.parameter] = goal.extra
        index = self._call(goal.tool, fed)
        if not self.chain.changes[index]:
            raise ProposalError(f"nothing to do: {goal.tool} changes nothing, since the state is so already")
        return index

    def _call(self, tool: str, fed: Mapping[str, Edge]) -> int:
        values: dict[Leaf, Any] = {}
        words: dict[Leaf, str] = {}
        sources: list[tuple[str, int | None, str]] = []
        for name, edge in fed.items():
            path = tuple(name.split("."))
            values[path], words[path], source = self._fetch(edge)
            sources.append((name, source, edge.output))
        values |= self._free(tool, values)
        index = len(self.chain.calls)
        call = ToolCall(tool, nested(values))
        before = self.world.material(self.world.view(self.state))
        self.state, observation = self.world.call(self.state, call)
        if is_refused(observation):
            raise ProposalError(f"refused: {tool} answers {observation.content[:100]} to values that its graph holds")
        self.chain.calls.append(call)
        self.chain.answers.append(outputs(observation))
        self.chain.changes.append(bool(differences(before, self.world.material(self.world.view(self.state))).changes))
        self.chain.links += [Link(index, name, source, output) for name, source, output in sources]
        self.chain.words[index] = words
        self.chain.depths.append(1 + max((self.chain.depths[source] for _, source, _ in sources if source is not None), default=0))
        return index

    def _fetch(self, edge: Edge) -> tuple[Any, str, int | None]:
        """A value for an edge's argument, its words, and the call that said it."""
        if edge.source == USER:
            output = self.rng.choice([item for item in self.given if item.pattern == edge.output])
            return output.value, text(output.value), None
        index = next((at for at, call in enumerate(self.chain.calls) if call.name == edge.source and self._reusable(at)), None)
        if index is None:
            node = self.graph.node(edge.source)
            index = self._call(edge.source, {name: self._choice(edge.source, name) for name in node.fed})
        said = [item for item in self.chain.answers[index] if item.pattern == edge.output]
        if not said:
            raise ProposalError(f"no answer: {edge.source} says nothing at {edge.output}")
        output = self._in_the_same_row(index, said)
        return output.value, self._words(index, output), index

    def _reusable(self, index: int) -> bool:
        """Whether an earlier call's answer may be read again: it was given no row, or the row that this goal is about."""
        fed = [link.source for link in self.chain.links if link.call == index and link.source is not None]
        return not fed or any((index, "used") in self._rows for _ in fed)

    def _in_the_same_row(self, index: int, said: list[Output]) -> Output:
        """One of the outputs, from the row that was chosen before in this answer, or from a newly chosen one."""
        self._rows.setdefault((index, "used"), ())
        row_pattern = said[0].pattern.rpartition("/")[0]
        row = self._rows.get((index, row_pattern))
        output = next((item for item in said if row is not None and item.place[: len(row)] == row), None) or self.rng.choice(said)
        if "*" in row_pattern:
            self._rows[index, row_pattern] = output.place[:-1]
        return output

    def _choice(self, tool: str, parameter: str) -> Edge:
        depth = self.graph.depth(tool)
        edges = [edge for edge in self.graph.feeding(tool, parameter) if edge.source == USER or 0 < self.graph.depth(edge.source) < depth]
        if not edges:
            raise ProposalError(f"no source: nothing feeds {tool}.{parameter}")
        return edges[0]

    def _free(self, tool: str, fed: Mapping[Leaf, Any]) -> dict[Leaf, Any]:
        """Values for the leaves that must be there and are not fed; one of an object that would be empty."""
        guesser = Guesser(self.rng)
        every = [parameter for parameter in parameters(self.tools[tool]) if parameter.path not in fed]
        free = [parameter for parameter in every if ".".join(parameter.path) in self.graph.node(tool).free]
        chosen = [parameter for parameter in every if parameter.required]
        for place in dict.fromkeys(p.path[:-1] for p in free if len(p.path) > 1 and not p.required):
            if not any(path[:-1] == place for path in fed):
                chosen.append(self.rng.choice([p for p in free if p.path[:-1] == place]))
        # What a reading tool is asked for is what is known to be answered; only changes are made up.
        known = {} if self.graph.node(tool).changes else dict(leaves_of(self.graph.node(tool).example))
        return {parameter.path: known.get(parameter.path) or guesser.value(tool, parameter, {})[0] for parameter in chosen}

    def _words(self, index: int, output: Output) -> str:
        """How a request speaks of a value that it does not say."""
        call, name = self.chain.calls[index], output.place[-1]
        if "*" in output.pattern.rpartition("/")[0].split("/"):
            return f"the {name} of {_described(output, self.chain.answers[index], self._identifiers(call.name))}"
        if self.chain.changes[index]:
            return f"the {name} that {call.name} gives then"
        given = ", ".join(self.chain.words[index].values())
        return f"the {name} that {call.name} gives" + (f" for {given}" if given else "")

    def _identifiers(self, tool: str) -> set[str]:
        return {edge.output for edge in self.graph.edges if edge.source == tool}


def _described(output: Output, said: list[Output], identifiers: set[str]) -> str:
    """A row of an answer by one or two of its plain values, or by its place where none tell it apart."""
    row, pattern = output.place[:-1], output.pattern.rpartition("/")[0]
    rows: dict[Leaf, dict[str, Any]] = {}
    for item in said:
        if item.pattern.rpartition("/")[0] == pattern:
            rows.setdefault(item.place[:-1], {})[item.place[-1]] = item.value
    names = [name for name in rows[row] if f"{pattern}/{name}" not in identifiers]
    kind = singular(next((key for key in reversed(pattern.split("/")) if key not in ("*", "")), "row"))
    for chosen in _subsets(names):
        same = [other for other in rows.values() if all(other.get(name) == rows[row][name] for name in chosen)]
        if len(same) == 1:
            return f"the {kind} whose " + " and ".join(f"{name} is {text(rows[row][name])}" for name in chosen)
    return f"{kind} number {list(rows).index(row) + 1}"


def _subsets(names: list[str]) -> Iterator[tuple[str, ...]]:
    for size in (1, 2, 3):
        yield from combinations(names, size)
