"""Which tool's answer feeds which tool's argument: a graph found by probing a world, not by reading names. Runs worlds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from ledger.bundle import BundleDraft
from ledger.canonical import parse
from ledger.errors import CanonicalError
from training.proposing.acting import SEED, is_refused
from training.proposing.arguments import Leaf, Parameter, is_related, nested, parameters, tool_name
from training.worlds import Observation, ToolCall, World
from training.worlds.difference import differences

ROUNDS = 6
_TRIES_A_TOOL = 60
_VALUES_AN_OUTPUT = 4
USER = "user"
"""The source of values that no tool answers, so that a request must say them; at depth 0."""
_UNKNOWN = {"string": "no such value", "integer": 987_654_321, "number": 987_654_321.5}


@dataclass(frozen=True)
class Edge:
    """The value at `output` of one tool's answer is accepted as `parameter` of another, where a value that nobody gave is refused.

    Attributes:
        source, output: the tool, or `user`, and the place in its answer; `*` is any item of a list or any key of a table.
        target, parameter: the tool and its argument, keys joined by dots.
        accepted, tried: how many values were probed and accepted.
    """

    source: str
    output: str
    target: str
    parameter: str
    accepted: int
    tried: int


@dataclass(frozen=True)
class ToolNode:
    """A tool.

    Attributes:
        name: its name.
        fed: required arguments that must come from an answer, keys joined by dots.
        free: arguments that take any value of their type.
        changes: whether it changes the state.
        example: the arguments of the call that was answered with most.
    """

    name: str
    fed: tuple[str, ...]
    free: tuple[str, ...]
    changes: bool
    example: Mapping[str, Any]


def _plain(tool: ToolNode) -> dict[str, Any]:
    return {**asdict(tool), "fed": list(tool.fed), "free": list(tool.free)}


@dataclass(frozen=True)
class ToolGraph:
    """The dependency graph of a world's tools; tools that never once succeeded are in `unreached`."""

    world: str
    tools: tuple[ToolNode, ...]
    edges: tuple[Edge, ...]
    unreached: tuple[str, ...]

    def node(self, name: str) -> ToolNode:
        """The tool of that name."""
        return next(tool for tool in self.tools if tool.name == name)

    def feeding(self, tool: str, parameter: str) -> list[Edge]:
        """The edges into one argument, those with related names first."""
        found = [edge for edge in self.edges if (edge.target, edge.parameter) == (tool, parameter)]
        return sorted(found, key=lambda edge: (not _speaks_of(edge), edge.source, edge.output))

    def depth(self, tool: str) -> int:
        """Calls on the shortest chain that unlocks a tool, itself included."""
        unlocked = {USER: 0}
        while True:
            new = {
                node.name: 1 + max((min(unlocked[edge.source] for edge in feeding) for feeding in needs), default=0)
                for node in self.tools
                if node.name not in unlocked
                and all(needs := [[e for e in self.feeding(node.name, fed) if e.source in unlocked] for fed in node.fed])
            }
            if tool in unlocked or not new:
                return unlocked.get(tool, 0)
            unlocked |= new

    def as_json(self) -> dict[str, Any]:
        """The graph as an artifact."""
        return {
            "world": self.world,
            "tools": [{**_plain(tool), "depth": self.depth(tool.name)} for tool in self.tools],
            "edges": [asdict(edge) for edge in self.edges],
            "unreached": list(self.unreached),
        }  # fmt: skip


@dataclass(frozen=True)
class Output:
    """One scalar in an answer: its value, its place, and the place with items and keys of tables as `*`."""

    value: Any
    place: Leaf
    pattern: str


def outputs(observation: Observation) -> list[Output]:
    """The scalars in a JSON answer; an answer of another form has none."""
    try:
        answer = parse(observation.content)
    except CanonicalError:
        return []
    return list(scalars(answer))


def scalars(value: Any) -> Iterator[Output]:
    """The texts and numbers in a JSON value, empty texts left out."""
    return _scalars(value, (), ())


def observe(world: World[Any], draft: BundleDraft, *, rng: Random, rounds: int = ROUNDS) -> ToolGraph:
    """The graph of a world's tools as seen from one task's initial state.

    Each round calls every tool with arguments from the answers seen so far; a call that succeeds is a base from which single arguments
    are then exchanged: by a value that nobody gave, which tells fed arguments from free ones, and by values from other answers.

    Args:
        world: the world.
        draft: gives the initial state.
        rng: the only source of randomness.
        rounds: 1 or more; a tool at depth d is reached in round d at the earliest.
    """
    return _Probe(world, draft, rng).graph(rounds)


class _Probe:
    def __init__(self, world: World[Any], draft: BundleDraft, rng: Random) -> None:
        self.world, self.rng = world, rng
        self.tools = {tool_name(tool): parameters(tool) for tool in world.tools(draft, turn=0)}
        self.start = world.reset(draft, seed=SEED)
        self.seen: dict[tuple[str, str], list[Any]] = {}
        self.before = world.material(world.view(self.start))
        self.given = _by_pattern(USER, scalars(world.view(self.start)))
        self.bases: dict[str, dict[Leaf, Any]] = {}
        self.changes: set[str] = set()
        self.most: dict[str, int] = {}
        self.examples: dict[str, dict[str, Any]] = {}

    def graph(self, rounds: int) -> ToolGraph:
        for _ in range(rounds):
            for name in self.tools:
                self._reach(name)
        nodes, edges = [], []
        for name in self.bases:
            fed = [parameter for parameter in self.tools[name] if self._is_fed(name, parameter)]
            found = [edge for parameter in fed for edge in self._edges(name, parameter)]
            required = [".".join(parameter.path) for parameter in fed if parameter.required]
            free = tuple(".".join(p.path) for p in self.tools[name] if p not in fed)
            needed = tuple(path for path in required if any(edge.parameter == path for edge in found))
            nodes.append(ToolNode(name, tuple(sorted(needed)), free, name in self.changes, self.examples[name]))
            edges += found
        unreached = tuple(name for name in self.tools if name not in self.bases)
        return ToolGraph(self.world.name, tuple(nodes), tuple(edges), unreached)

    def _call(self, name: str, leaves: Mapping[Leaf, Any]) -> Observation | None:
        """The answer to a call at the initial state, or None where it was refused; what it says is remembered."""
        after, observation = self.world.call(self.start, ToolCall(name, nested(leaves)))
        if is_refused(observation):
            return None
        said = outputs(observation)
        if len(said) > self.most.get(name, -1):
            self.most[name], self.examples[name] = len(said), nested(leaves)
        for key, values in _by_pattern(name, said).items():
            known = self.seen.setdefault(key, [])
            known += [value for value in values if value not in known]
        if name not in self.changes and differences(self.before, self.world.material(self.world.view(after))).changes:
            self.changes.add(name)
        return observation

    def _reach(self, name: str) -> None:
        """Call a tool with what is known until it succeeds; once it has, a few more times for more answers."""
        every = self.tools[name]
        must = [parameter for parameter in every if parameter.required]
        for _ in range(_TRIES_A_TOOL):
            known = self.seen if self.rng.random() < 0.5 else {**self.given, **self.seen}
            leaves = {parameter.path: self._guess(parameter, known) for parameter in [*must, *self._one_of_nested(every)]}
            if self._call(name, leaves) is not None:
                self.bases.setdefault(name, leaves)
                if not leaves or self.rng.random() < 0.4:
                    return

    def _one_of_nested(self, every: Sequence[Parameter]) -> list[Parameter]:
        """One optional leaf of each object that holds only optional ones."""
        places = dict.fromkeys(p.path[:-1] for p in every if len(p.path) > 1 and not p.required)
        return [self.rng.choice([p for p in every if p.path[:-1] == place]) for place in places]

    def _guess(self, parameter: Parameter, known: Mapping[tuple[str, str], list[Any]]) -> Any:
        if parameter.schema.get("enum"):
            return self.rng.choice([item for item in parameter.schema["enum"] if item is not None])
        if parameter.kinds == ("boolean",):
            return self.rng.random() < 0.5
        fitting = [values for values in known.values() if any(parameter.takes(value) for value in values)]
        related = [v for (_, pattern), v in known.items() if v in fitting and is_related(parameter.name, pattern.split("/")[-1])]
        pool = related if related and self.rng.random() < 0.7 else fitting
        if not pool:
            return next((_UNKNOWN[kind] for kind in parameter.kinds if kind in _UNKNOWN), None)
        return self.rng.choice([value for value in self.rng.choice(pool) if parameter.takes(value)])

    def _is_fed(self, name: str, parameter: Parameter) -> bool:
        """Whether an argument refuses a value that nobody gave."""
        kind = next((kind for kind in parameter.kinds if kind in _UNKNOWN), None)
        if kind is None or parameter.schema.get("enum"):
            return False
        return self._call_with(name, parameter, _UNKNOWN[kind]) is None

    def _edges(self, name: str, parameter: Parameter) -> Iterator[Edge]:
        found = [edge for key, values in sorted(self.seen.items()) if (edge := self._edge(key, values, name, parameter)) is not None]
        if not found:
            found = [edge for key, values in self.given.items() if (edge := self._edge(key, values, name, parameter)) is not None]
        yield from found

    def _edge(self, key: tuple[str, str], values: Sequence[Any], name: str, parameter: Parameter) -> Edge | None:
        base = self.bases[name].get(parameter.path)
        fitting = sorted((value for value in values if parameter.takes(value)), key=lambda value: value != base)[:_VALUES_AN_OUTPUT]
        accepted = sum(self._call_with(name, parameter, value) is not None for value in fitting)
        return Edge(*key, name, ".".join(parameter.path), accepted, len(fitting)) if accepted and key[0] != name else None

    def _call_with(self, name: str, parameter: Parameter, value: Any) -> Observation | None:
        leaves = {path: item for path, item in self.bases[name].items() if path != parameter.path}
        return self._call(name, {**leaves, parameter.path: value})


def _by_pattern(source: str, found: Iterable[Output]) -> dict[tuple[str, str], list[Any]]:
    grouped: dict[tuple[str, str], list[Any]] = {}
    for output in found:
        values = grouped.setdefault((source, output.pattern), [])
        if output.value not in values:
            values.append(output.value)
    return grouped


def _speaks_of(edge: Edge) -> bool:
    return is_related(edge.parameter.split(".")[-1], edge.output.split("/")[-1])


def _scalars(value: Any, place: Leaf, pattern: Leaf) -> Iterator[Output]:
    if isinstance(value, Mapping):
        table = bool(value) and all(isinstance(row, Mapping) for row in value.values())
        for key, item in value.items():
            yield from _scalars(item, (*place, str(key)), (*pattern, "*" if table else str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _scalars(item, (*place, str(index)), (*pattern, "*"))
    elif isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
        yield Output(value, place, "/" + "/".join(pattern))
