"""The command that folds read models again: rebuild. Writes the read models."""

from typing import Annotated

import typer

from ledger import projections
from ledger.cli_settings import open_asked
from ledger.terminal import bar, console


def add_to(app: typer.Typer) -> None:
    """Register this module's command."""
    app.command()(rebuild)


def rebuild(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help=f"Any of {', '.join(projections.MODELS)}.")] = None,
    *,
    batch: Annotated[int, typer.Option(min=1, max=1_000_000, help="Most events folded in one transaction.")] = projections.BATCH,
) -> None:
    """Fold read models again from the start, all or those named, while readers see the old rows; a broken-off rebuild goes on."""
    with open_asked(ctx) as ledger, bar() as shown:
        ledger.barrier()
        task = shown.add_task("rebuild", total=None)
        done = projections.rebuild(
            ledger, *(names or ()), batch=batch, progress=lambda reached, total: shown.update(task, completed=reached, total=total)
        )
    reached, left = min(done.positions.values()), f"; still read, and left to the next rebuild: {done.left}" if done.left else ""
    console().print(f"{', '.join(done.positions)} folded up to position {reached}; old tables dropped: {done.dropped}{left}")
