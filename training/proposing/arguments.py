"""Arguments that a world may accept, from tool schemas and from the values that a state holds. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

Pools = dict[str, list[Any]]
Leaf = tuple[str, ...]
_WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "harbor", "iris", "juniper", "kelp", "lotus")


@dataclass(frozen=True)
class Parameter:
    """One leaf of a tool's arguments.

    Attributes:
        path: keys from the arguments down, such as `("fields", "status")`.
        schema: its JSON Schema.
        required: every call must hold it.
    """

    path: Leaf
    schema: Mapping[str, Any]
    required: bool

    @property
    def name(self) -> str:
        """The last key."""
        return self.path[-1]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The JSON types that it takes, null aside; any when the schema names none."""
        kind = self.schema.get("type", ("string", "integer", "number", "boolean"))
        return tuple(item for item in ([kind] if isinstance(kind, str) else kind) if item != "null")

    def takes(self, value: Any) -> bool:
        """Whether a value has one of its JSON types."""
        return any(_is_kind(value, kind) for kind in self.kinds)


def tool_name(tool: Mapping[str, Any]) -> str:
    """The name in an OpenAI tool schema."""
    return str(tool["function"]["name"])


def parameters(tool: Mapping[str, Any]) -> list[Parameter]:
    """The leaves of a tool's arguments in the order of its schema; objects with named properties are gone into."""
    schema = tool["function"].get("parameters") or {}
    return list(_leaves(schema, (), required=True))


def nested(leaves: Mapping[Leaf, Any]) -> dict[str, Any]:
    """Arguments from values by path."""
    arguments: dict[str, Any] = {}
    for path, value in leaves.items():
        place = arguments
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = value
    return arguments


def leaves_of(arguments: Any, path: Leaf = ()) -> Iterator[tuple[Leaf, Any]]:
    """Path and value of every scalar in arguments; lists count as values."""
    if isinstance(arguments, Mapping):
        for key, value in arguments.items():
            yield from leaves_of(value, (*path, str(key)))
    else:
        yield path, arguments


def pools(*values: Any) -> Pools:
    """Name to the distinct scalars that stand under it anywhere in the values, in the order of first sight.

    A table, which is an object of objects, gives its keys under `id`, its own name, that name's singular and `<singular>_id`; an object of
    scalars of one type with a plural name gives its keys, and a list its scalars, under the singular.
    """
    found: Pools = {}
    for value in values:
        _collect(value, "", found)
    return found


@dataclass
class Guesser:
    """Draws arguments for tools and remembers under which names values were found that a world accepted.

    Attributes:
        rng: the only source of randomness.
        learned: (tool, path) to those names.
    """

    rng: Random
    learned: dict[tuple[str, Leaf], list[str]] = field(default_factory=dict)

    def draw(self, tool: Mapping[str, Any], known: Pools) -> tuple[dict[str, Any], dict[Leaf, str]]:
        """Arguments for a tool, and for each leaf under which name its value was found (empty where it was made up)."""
        chosen = self._chosen(parameters(tool))
        values: dict[Leaf, Any] = {}
        origins: dict[Leaf, str] = {}
        for parameter in chosen:
            values[parameter.path], origins[parameter.path] = self.value(tool_name(tool), parameter, known)
        return nested(values), origins

    def _chosen(self, every: Sequence[Parameter]) -> list[Parameter]:
        """The required leaves, and up to two optional ones of each object; an object that must be there is not left empty."""
        chosen = [parameter for parameter in every if parameter.required]
        for place in dict.fromkeys(parameter.path[:-1] for parameter in every):
            optional = [parameter for parameter in every if not parameter.required and parameter.path[:-1] == place]
            if optional:
                least = int(bool(place))
                chosen += self.rng.sample(optional, min(len(optional), self.rng.choice((least, least, 1, 2))))
        return chosen

    def value(self, tool: str, parameter: Parameter, known: Pools) -> tuple[Any, str]:
        """A value for a parameter, and the name under which it was found."""
        if "const" in parameter.schema:
            return parameter.schema["const"], ""
        if parameter.schema.get("enum"):
            return self.rng.choice([item for item in parameter.schema["enum"] if item is not None]), ""
        if parameter.kinds == ("boolean",):
            return self.rng.random() < 0.5, ""
        if parameter.kinds == ("array",):
            item = Parameter((*parameter.path[:-1], singular(parameter.name)), parameter.schema.get("items") or {}, parameter.required)
            value, origin = self.value(tool, item, known)
            return [value], origin
        names = self._names(tool, parameter, known)
        if names:
            name = self.rng.choice(names)
            return self.rng.choice([item for item in known[name] if parameter.takes(item)]), name
        return self._made_up(parameter), ""

    def accepted(self, tool: str, origins: Mapping[Leaf, str]) -> None:
        """Remember where the values of an accepted call were found."""
        for path, name in origins.items():
            if name and name not in self.learned.setdefault((tool, path), []):
                self.learned[tool, path].append(name)

    def _names(self, tool: str, parameter: Parameter, known: Pools) -> list[str]:
        fitting = [name for name, values in known.items() if any(parameter.takes(item) for item in values)]
        learned = [name for name in self.learned.get((tool, parameter.path), ()) if name in fitting]
        related = [name for name in fitting if is_related(parameter.name, name)]
        if learned and self.rng.random() < 0.8:
            return learned
        if related and self.rng.random() < 0.8:
            return related
        # Free text is worth a word of its own more often than a value that means something else.
        return fitting if self.rng.random() < 0.5 else []

    def _made_up(self, parameter: Parameter) -> Any:
        schema = parameter.schema
        if "string" in parameter.kinds:
            return f"{self.rng.choice(_WORDS)} {self.rng.randrange(10, 100)}"
        low = int(schema.get("minimum", 0))
        return self.rng.randint(low, max(low, min(int(schema.get("maximum", low + 20)), low + 1000)))


def is_related(parameter: str, name: str) -> bool:
    """Whether a value under `name` is likely meant for `parameter`: the same name, or one ends in the other."""
    a, b = parameter.lower(), name.lower()
    return a == b or a.endswith(f"_{b}") or b.endswith(f"_{a}") or (b == "id" and a.endswith("id"))


def singular(name: str) -> str:
    """A plural English name's singular, by its ending alone."""
    if name.endswith("ies"):
        return name[:-3] + "y"
    return name[:-1] if name.endswith("s") and not name.endswith("ss") else name


def _leaves(schema: Mapping[str, Any], path: Leaf, *, required: bool) -> Iterator[Parameter]:
    needed = schema.get("required") or ()
    for name, item in (schema.get("properties") or {}).items():
        must = required and name in needed
        if item.get("properties"):
            yield from _leaves(item, (*path, name), required=must)
        else:
            yield Parameter((*path, name), item, must)


def _is_kind(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    python: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "array": list, "object": Mapping, "boolean": ()}
    return isinstance(value, python.get(kind, ()))


def _collect(value: Any, name: str, found: Pools) -> None:
    if isinstance(value, Mapping):
        one = singular(name)
        if value and name and all(isinstance(row, Mapping) for row in value.values()):
            for alias in dict.fromkeys(("id", name, one, f"{one}_id")):
                _add(found, alias, list(value))
        elif value and one != name and len({type(item) for item in value.values()}) == 1:
            _add(found, one, list(value))
        for key, item in value.items():
            _collect(item, str(key), found)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            _collect(item, singular(name), found)
    elif value is not None and name:
        _add(found, name, [value])


def _add(found: Pools, name: str, values: Sequence[Any]) -> None:
    known = found.setdefault(name, [])
    known += [value for value in values if not any(value == item and type(value) is type(item) for item in known)]
