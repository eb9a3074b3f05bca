"""The command `tally systems`: which published systems are here, by which methods, and what they do not show. Reads files."""

from typing import Annotated, Any

import typer

from audit.bundle_checks import bundle_checks
from audit.world_checks import world_checks
from ledger.errors import SettingsError
from ledger.methods import Family
from ledger.terminal import cell, console, print_json, table
from training.systems import FAMILIES, System, bound_methods, read_systems

ALL_FAMILIES: dict[str, Family[Any]] = {**FAMILIES, "bundle_checks": bundle_checks, "world_checks": world_checks}


def systems(
    name: Annotated[str | None, typer.Argument(help="the id of one, such as S46; all when left out")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object a line")] = False,
) -> None:
    """List published systems with their methods, source and stated boundary; with an id, all that is known of one."""
    found = read_systems(ALL_FAMILIES)
    if name is not None:
        chosen = [system for system in found if system.id == name.upper()]
        if not chosen:
            raise SettingsError(f"no system {name!r}; there are {', '.join(system.id for system in found)}")
        found = tuple(chosen)
    if as_json:
        for system in found:
            print_json({**system.model_dump(), "method_ids": [bound.ref.method_id for bound in bound_methods(system, ALL_FAMILIES)]})
    elif name is not None:
        _print_one(found[0])
    else:
        rows = [(system.id, system.name, ", ".join(part.name for part in system.methods), system.boundary) for system in found]
        console().print(table(("id", "system", "methods", "boundary"), rows))


def _print_one(system: System) -> None:
    screen = console()
    screen.print(cell(f"{system.id} {system.name}: {system.what}"), soft_wrap=True)
    source = system.source
    screen.print(
        cell(f"source: {source.paper}{f', {source.repository}' if source.repository else ''} (read: {source.read})"), soft_wrap=True
    )
    screen.print(cell(f"boundary: {system.boundary}"), soft_wrap=True)
    screen.print(cell(f"works: {system.works}"), soft_wrap=True)
    screen.print(cell(f"shown by: {system.test}"), soft_wrap=True)
    rows = [(part.family, part.name, " ".join(f"{k}={v}" for k, v in part.params.items()), part.does) for part in system.methods]
    screen.print(table(("family", "method", "parameters", "does"), rows))
