"""The command that packs the tokens of ended rollouts. Writes the database."""

import typer

from ledger.cli_settings import open_asked
from ledger.terminal import cell, console
from ledger.token_packing import pack_ended


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("pack")(pack)


def pack(ctx: typer.Context) -> None:
    """Pack the tokens that ended rollouts left staged; exit code 1 when some do not fit their events and stay where they are."""
    with open_asked(ctx) as ledger:
        found = pack_ended(ledger)
    before, after = f"{found.staged_bytes:,}", f"{found.packed_bytes:,}"
    console().print(f"packed {found.calls} calls into {found.packs} packs: {before} bytes staged, {after} packed")
    if found.taken:
        console().print(f"{found.taken} sets of calls were packed by another process meanwhile")
    for fault in found.faults:
        console().print(cell(f"left staged: {fault}"))
    if found.faults:
        raise typer.Exit(1)
