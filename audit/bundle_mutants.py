"""Mutants of a reference path: each differs from it in one place, and says of which kind it is. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from audit.paths import Step
from audit.tool_calls import CallMaker

KINDS = ("drop", "duplicate", "change", "swap", "truncate", "stray")
_CHANGES_PER_ARGUMENT = 2


@dataclass(frozen=True)
class Mutant:
    """A path that is probably wrong.

    Attributes:
        kind: what was done, with the tool and argument that it was done to, such as `change send_email.to`.
        steps: the path.
    """

    kind: str
    steps: tuple[Step, ...]


def mutants_of(steps: Sequence[Step], writes: Sequence[int], maker: CallMaker) -> Iterator[Mutant]:
    """The mutants of a path, without stray writes, which need a world to be found.

    Args:
        steps: the reference.
        writes: indices of its calls that change the material state.
        maker: knows what else an argument could have held.
    """
    path = tuple(steps)
    for at in writes:
        yield Mutant(f"drop {path[at].name}", (*path[:at], *path[at + 1 :]))
        yield Mutant(f"duplicate {path[at].name}", (*path[: at + 1], path[at], *path[at + 1 :]))
        for argument, changed in _changed(path[at], maker):
            yield Mutant(f"change {path[at].name}.{argument}", (*path[:at], changed, *path[at + 1 :]))
    for first, second in combinations(writes, 2):
        for argument in _swappable(path[first], path[second]):
            one, other = (_with(path[a], argument, path[b].arguments[argument]) for a, b in ((first, second), (second, first)))
            made = list(path)
            made[first], made[second] = one, other
            yield Mutant(f"swap {path[first].name}.{argument}", tuple(made))
    if len(writes) > 1:
        yield Mutant("truncate", path[: writes[len(writes) // 2]])


def _changed(step: Step, maker: CallMaker) -> Iterator[tuple[str, Step]]:
    """The step with one argument changed, one level of objects deep."""
    for name, value in step.arguments.items():
        if isinstance(value, Mapping):
            for inner, held in value.items():
                for other in maker.others(step.name, inner, held)[:_CHANGES_PER_ARGUMENT]:
                    yield f"{name}.{inner}", _with(step, name, {**value, inner: other})
        else:
            for other in maker.others(step.name, name, value)[:_CHANGES_PER_ARGUMENT]:
                yield name, _with(step, name, other)


def _swappable(first: Step, second: Step) -> list[str]:
    if first.name != second.name:
        return []
    return [name for name, value in first.arguments.items() if name in second.arguments and second.arguments[name] != value]


def _with(step: Step, argument: str, value: Any) -> Step:
    return replace(step, arguments={**step.arguments, argument: value})
