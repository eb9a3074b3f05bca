"""The command `tally sandbox`: what protects this machine from the code that it runs. Starts processes."""

import json
from typing import Annotated

import typer

from ledger.settings import Settings
from ledger.terminal import console, table
from training.worlds.runtime import ALLOW, PROTECTIONS, protections


def sandbox(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Try what protects from generated and foreign code; exit code 1 when generated code would be refused."""
    found = protections()
    allowed = Settings().allowed_missing
    refused = sorted(found.missing.keys() - allowed)
    way = found.confinement
    if as_json:
        made = None if way is None else {"mode": way.mode, "bwrap": None if way.bwrap is None else str(way.bwrap)}
        facts = {"made_by": made, "held": dict(found.held), "missing": dict(found.missing), "allowed_missing": sorted(allowed)}
        print(json.dumps(facts, indent=1))
    else:
        rows = [
            [name, "held" if name in found.held else "missing", found.held.get(name) or found.missing[name], meaning]
            for name, meaning in PROTECTIONS.items()
        ]
        screen = console()
        screen.print(table(["protection", "", "by, or why not", "means"], rows))
        screen.print("no sandbox can be made here" if way is None else f"made by {way.bwrap or 'Landlock and seccomp'}, mode {way.mode}")
        if refused:
            screen.print(f"generated code is refused; {ALLOW}={','.join(refused)} would allow it without them")
    if refused or way is None:
        raise typer.Exit(1)
