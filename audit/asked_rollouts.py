"""Which rollouts a command is about, by `--where name=value`, and the worlds that they were in. Opens worlds."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from ledger.errors import SettingsError
from ledger.queries import Filter
from ledger.settings import Settings
from training.worlds import World
from training.worlds.source import source_of

_NUMBERS, _FLAGS = ("round",), ("counted",)


def filter_of(conditions: Sequence[str]) -> Filter:
    """The filter that conditions such as `policy=oracle` and `round=3` describe; all of them must hold.

    Raises:
        SettingsError: a condition is not `name=value`, or names something else.
    """
    names = [field.name for field in dataclasses.fields(Filter)]
    given: dict[str, Any] = {}
    for condition in conditions:
        name, equals, value = condition.partition("=")
        if not equals or name not in names or name in given:
            raise SettingsError(f"condition {condition!r}; allowed: name=value, each name once, with one of {', '.join(names)}")
        if name in _NUMBERS and not value.isdigit():
            raise SettingsError(f"condition {condition!r}; allowed: a whole number")
        if name in _FLAGS and value not in ("true", "false"):
            raise SettingsError(f"condition {condition!r}; allowed: true or false")
        given[name] = int(value) if name in _NUMBERS else value == "true" if name in _FLAGS else value
    return Filter(**given)


@contextmanager
def opened_worlds(settings: Settings, options: Mapping[str, Any]) -> Iterator[Callable[[str], World[Any]]]:
    """What opens a world by its name, each once, and closes all of them in the end.

    Args:
        options: of the worlds' sources; each takes those that it knows.
    """
    with ExitStack() as stack:
        known: dict[str, World[Any]] = {}

        def world_of(name: str) -> World[Any]:
            if name not in known:
                source = source_of(name)
                known[name] = source.open(settings, {key: options[key] for key in source.opening if key in options})
                stack.callback(getattr(known[name], "close", lambda: None))
            return known[name]

        yield world_of
