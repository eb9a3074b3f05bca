"""Calls made from tool schemas and from values in a state: legal ones, and illegal ones by what is wrong with them. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from audit.paths import Step

READ_VERBS = (
    "calculate", "cat", "check", "compute", "count", "describe", "diff", "display", "du", "estimate", "fetch", "find", "get", "grep", "has",
    "head", "inspect", "is", "list", "lookup", "ls", "pwd", "query", "read", "retrieve", "search", "show", "sort", "stat", "tail",
    "validate", "verify", "view", "wc",
)  # fmt: skip
ILLEGAL_KINDS = ("unknown_tool", "missing_argument", "wrong_type", "unknown_argument", "not_in_enum")
_ABSENT_TOOL = "no_such_tool"
_TEXTS = ("a note", "checked again", "42")


@dataclass(frozen=True)
class IllegalCall:
    """A call that breaks the tools' own schemas, and how."""

    kind: str
    name: str
    arguments: Mapping[str, Any]


class CallMaker:
    """Makes calls for a set of tools at one state.

    Args:
        tools: OpenAI tool schemas.
        views: state views from which argument values are drawn.
        known: calls that are known to be legal; they tell where in a state a tool's arguments come from.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]], views: Sequence[Any], known: Sequence[Step] = ()) -> None:
        self.schemas: dict[str, Mapping[str, Any]] = {
            tool["function"]["name"]: tool["function"].get("parameters") or {"type": "object", "properties": {}} for tool in tools
        }
        self._pools: dict[str, list[Any]] = {}
        for view in views:
            for key, value in _leaves(view):
                pool = self._pools.setdefault(key, [])
                if value not in pool:
                    pool.append(value)
        self._links: dict[tuple[str, str], list[Any]] = {}
        for step in known:
            for name, value in _arguments(step.arguments):
                self._links.setdefault((step.name, name), []).extend(self._like(value))

    def legal(self, tool: str, rng: Random) -> dict[str, Any]:
        """Arguments that the tool's schema allows, drawn from the state where it holds any that fit."""
        made = self._object(tool, self.schemas[tool], rng, full=rng.random() < 0.5)
        assert isinstance(made, dict)
        return made

    def illegal(self, tool: str, rng: Random, base: Mapping[str, Any]) -> IllegalCall:
        """A call that breaks the tool's schema in one place; `base` are legal arguments."""
        options = list(self._illegal(tool, base))
        return options[rng.randrange(len(options))]

    def others(self, tool: str, argument: str, value: Any) -> list[Any]:
        """Values like `value` that the same argument could have held, those from the state first."""
        pool = [*self._like(value), *self._links.get((tool, argument), ()), *self._pools.get(argument, ())]
        made = [
            other for other in dict.fromkeys(item for item in pool if isinstance(item, str | int | float)) if type(other) is type(value)
        ]
        if isinstance(value, bool):
            return [not value]
        if isinstance(value, int | float):
            made.append(value + 1)
        elif isinstance(value, str):
            made.append(f"{value}_x")
        return [other for other in made if other != value]

    def _illegal(self, tool: str, base: Mapping[str, Any]) -> Iterator[IllegalCall]:
        yield IllegalCall("unknown_tool", _ABSENT_TOOL, base)
        schema = self.schemas[tool]
        properties = schema.get("properties", {})
        for name in schema.get("required", ()):
            yield IllegalCall("missing_argument", tool, {key: value for key, value in base.items() if key != name})
        if schema.get("additionalProperties") is False:
            yield IllegalCall("unknown_argument", tool, {**base, "no_such_argument": 1})
        for name, field in properties.items():
            wrong = _of_other_type(field)
            if wrong is not None:
                yield IllegalCall("wrong_type", tool, {**base, name: wrong})
            if field.get("enum") and all(isinstance(item, str) for item in field["enum"]):
                yield IllegalCall("not_in_enum", tool, {**base, name: "no_such_choice"})

    def _like(self, value: Any) -> list[Any]:
        """The first pool of the state that holds `value`: what stands in the same kind of place."""
        if isinstance(value, bool) or value is None:
            return []
        return next((list(pool) for pool in self._pools.values() if value in pool), [])

    def _object(self, tool: str, schema: Mapping[str, Any], rng: Random, *, full: bool) -> dict[str, Any]:
        properties: Mapping[str, Any] = schema.get("properties", {})
        required = list(schema.get("required", ()))
        optional = [name for name in properties if name not in required]
        kept = optional if full else rng.sample(optional, rng.randint(min(1, len(optional)) if not required else 0, len(optional)))
        return {name: self._value(tool, name, properties[name], rng) for name in properties if name in required or name in kept}

    def _value(self, tool: str, name: str, field: Mapping[str, Any], rng: Random) -> Any:
        for union in ("anyOf", "oneOf", "allOf"):
            if field.get(union):
                return self._value(tool, name, field[union][0], rng)
        if "const" in field:
            return field["const"]
        if field.get("enum"):
            return rng.choice(list(field["enum"]))
        kind = _kind(field)
        if kind == "object":
            return self._object(tool, field, rng, full=False)
        if kind == "array":
            return [self._value(tool, name, field.get("items", {}), rng) for _ in range(max(1, int(field.get("minItems", 1))))]
        if kind == "boolean":
            return rng.random() < 0.5
        pool = [item for item in [*self._links.get((tool, name), ()), *self._named(tool, name)] if _fits(item, kind)]
        if pool:
            return rng.choice(pool)
        if kind in ("integer", "number"):
            low = field.get("minimum", 1)
            return int(low) + rng.randrange(1, 4) if "maximum" not in field else rng.randint(int(low), max(int(low), int(field["maximum"])))
        return rng.choice(_TEXTS)

    def _named(self, tool: str, name: str) -> list[Any]:
        """Values of the state in places that are named as the argument is, or as the thing whose id it is."""
        if name in self._pools:
            return self._pools[name]
        stem = name.removesuffix("_id").removesuffix("_name")
        if name == "id":
            stem = tool.rpartition("_")[2]
        return self._pools.get(f"{stem}s#", []) or self._pools.get(f"{stem}#", [])


def is_read(tool: Mapping[str, Any]) -> bool:
    """Whether a tool says that it only reads: by an MCP annotation, else by the verb that its name starts with."""
    function = tool["function"]
    annotations = {**tool.get("annotations", {}), **function.get("annotations", {})}
    if "readOnlyHint" in annotations:
        return bool(annotations["readOnlyHint"])
    return str(function["name"]).rpartition(".")[2].partition("_")[0].lower() in READ_VERBS


def _leaves(view: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """(name of the place, value) of each scalar, and (`<table>#`, key) of each row of a table of objects."""
    if isinstance(view, Mapping):
        rows = bool(view) and all(isinstance(item, Mapping | Sequence) and not isinstance(item, str) for item in view.values())
        for name, item in view.items():
            if rows and key:
                yield f"{key}#", name
            yield from _leaves(item, str(name) if not rows or not key else key)
    elif isinstance(view, Sequence) and not isinstance(view, str | bytes):
        for item in view:
            yield from _leaves(item, key)
    elif view is not None:
        yield key, view


def _arguments(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _arguments(item, str(key))
    elif isinstance(value, str | int | float):
        yield name, value


def _kind(field: Mapping[str, Any]) -> str:
    kind = field.get("type", "string")
    if isinstance(kind, list):
        kind = next((item for item in kind if item != "null"), "string")
    return {"dict": "object", "float": "number", "tuple": "array", "list": "array", "any": "string"}.get(str(kind), str(kind))


def _fits(value: Any, kind: str) -> bool:
    if kind == "string":
        return isinstance(value, str)
    if isinstance(value, bool):
        return False
    return isinstance(value, int) if kind == "integer" else isinstance(value, int | float)


def _of_other_type(field: Mapping[str, Any]) -> Any:
    if any(field.get(union) for union in ("anyOf", "oneOf", "allOf")):
        return None
    return {"string": {"no": "text"}, "integer": "no number", "number": "no number", "object": "no object", "boolean": {"no": "flag"}}.get(
        _kind(field), "no list"
    )
