"""Several worlds side by side in one task, each with its own state and tools."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from ledger.bundle import BundleDraft
from ledger.errors import SettingsError
from ledger.settings import Settings
from training.worlds import World
from training.worlds.combined.world import Combined
from training.worlds.source import TaskQuery, WorldSource, source_of

__all__ = ["SOURCE", "Combined"]


def _services(options: Mapping[str, Any]) -> dict[str, WorldSource]:
    """Service name to its kind of world, for the option `services`: a list of worlds, in which one may come twice."""
    names = options.get("services")
    if not isinstance(names, list | tuple) or len(names) < 2 or "combined" in names:
        raise SettingsError(f"option services is {names!r}; allowed: a list of two or more worlds other than combined")
    counts: dict[str, int] = {}
    found = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        found[name if counts[name] == 1 else f"{name}_{counts[name]}"] = source_of(name)
    return found


def _open(settings: Settings, options: Mapping[str, Any]) -> World[Any]:
    return Combined({service: source.open(settings, {}) for service, source in _services(options).items()})


def _tasks(world: World[Any], query: TaskQuery, settings: Settings) -> Sequence[BundleDraft]:
    from training.proposers import ProposalContext, proposers

    assert isinstance(world, Combined)
    drafts: dict[str, BundleDraft] = {}
    for at, (service, source) in enumerate(_services(query.options).items()):
        for draft in source.tasks(world.services[service], TaskQuery(query.count, query.seed + at), settings):
            drafts.setdefault(draft.name, draft)
    context = ProposalContext(world, drafts=tuple(drafts.values()))
    return tuple(proposers["service_combination"](context, query.count, rng=Random(query.seed)))


SOURCE = WorldSource("combined", open=_open, tasks=_tasks, opening=("services",))
"""Combined worlds as experiments open them; `services` names the worlds."""
