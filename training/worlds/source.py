"""What an experiment needs to know of a kind of world: how it is opened, where its tasks come from, who can act in it and who judges."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import training.worlds
from ledger.bundle import BundleDraft
from ledger.errors import SettingsError
from ledger.settings import Settings
from training.worlds import AssistantTurn, World
from training.worlds.opportunities import Opportunities

VerifierKind = Literal["program", "state_diff", "judge", "human"]
Script = Callable[[BundleDraft], Sequence[AssistantTurn]]
"""A scripted policy: what it answers in a task, turn by turn. It may take keyword-only parameters with defaults; see `with_params`."""


@dataclass(frozen=True)
class TaskQuery:
    """Which tasks an experiment wants.

    Attributes:
        count: how many, from the first on.
        seed: for generated tasks.
        options: what the world further takes, such as BFCL's category.
    """

    count: int
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class WorldSource:
    """A kind of world. The folder `training/worlds/<name>` holds one as `SOURCE`; what it needs is imported and started in `open`.

    Attributes:
        name: the folder's name.
        open: the world of a deployment with those of a query's options that `opening` names; it may have `close()`, which is then called.
        tasks: the tasks that a query asks for.
        verifiers: names with their kinds; the first is the bundle's own, the others are second opinions.
        choices: further verifiers that an experiment can make the bundles' own; they give no second opinions.
        scripts: scripted policies by name; `oracle` replays the reference.
        opening: names of the options that make another world, such as a server's command.
        opportunities: where in a task a policy may act or hold back; None for a world whose tasks nobody has classified.
    """

    name: str
    open: Callable[[Settings, Mapping[str, Any]], World[Any]]
    tasks: Callable[[World[Any], TaskQuery, Settings], Sequence[BundleDraft]]
    verifiers: tuple[tuple[str, VerifierKind], ...] = (("end_state", "state_diff"),)
    choices: tuple[tuple[str, VerifierKind], ...] = ()
    scripts: Mapping[str, Script] = field(default_factory=dict)
    opening: tuple[str, ...] = ()
    opportunities: Opportunities | None = None


def with_params(script: Script, params: Mapping[str, Any]) -> Script:
    """The script with its parameters fixed; the script itself where there are none.

    Raises:
        SettingsError: a parameter that it does not take; the message names those that it takes.
    """
    if not params:
        return script
    known = [name for name, p in inspect.signature(script).parameters.items() if p.kind is p.KEYWORD_ONLY]
    if unknown := [name for name in params if name not in known]:
        name = getattr(script, "__name__", "script")
        raise SettingsError(f"the policy {name} takes no parameter {unknown[0]!r}; it takes {', '.join(known) or 'none'}")
    return partial(script, **params)


def source_names() -> list[str]:
    """Names of all kinds of worlds, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(training.worlds.__path__) if module.ispkg)


def source_of(name: str) -> WorldSource:
    """The kind of world of this name.

    Raises:
        SettingsError: there is none.
    """
    if name not in source_names():
        raise SettingsError(f"no world {name!r}; there are {', '.join(source_names())}")
    source = importlib.import_module(f"training.worlds.{name}").SOURCE
    assert isinstance(source, WorldSource)
    return source
