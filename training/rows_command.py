"""The command `tally rows`: the training rows of one rollout and why each was opened. Reads the database, writes to the terminal."""

from typing import Annotated

import typer
from rich.console import Console

from ledger import queries
from ledger.cli_settings import open_asked
from ledger.decoders import installed_decoder
from ledger.terminal import cell, console, plain, print_json, table
from training.rows_shown import Excerpt, RowLine, RowsShown, rollout_rows

_TEXT = 400
_CALLS = 12


def rows(
    ctx: typer.Context,
    ident: Annotated[str, typer.Argument(metavar="ROLLOUT_ID", help="id of a rollout, or a beginning of it that no other shares")],
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Show the training rows of a rollout, why each was opened, and the text where a prompt left the row before it."""
    with open_asked(ctx) as ledger:
        queries.fresh(ledger)
        shown = rollout_rows(ledger, queries.resolve(ledger, "rollout", ident), installed_decoder())
    if as_json:
        print_json(shown.as_json())
    else:
        print_rows(console(), shown)


def print_rows(out: Console, shown: RowsShown) -> None:
    """Print the table of rows, then each divergence with both sides, then what was counted."""
    if shown.rows:
        columns = ["row", "participant", "calls", "tokens", "trained", "opened because", "left row", "at token"]
        out.print(table(columns, [_line(row) for row in shown.rows]))
    else:
        out.print("No rows: no call of this rollout has token ids.")
    for row in shown.rows:
        _print_divergence(out, row)
    left_out = {name: count for name, count in shown.counters.items() if not name.startswith("rows_opened:")}
    for name, count in left_out.items():
        out.print(cell(f"counted   {name} {count}"))
    for text in shown.processed:
        out.print(cell(f"sampling  {text}: not the plain distribution"))


def _line(row: RowLine) -> list[str | int]:
    calls = ", ".join(map(str, row.calls[:_CALLS])) + (f" and {len(row.calls) - _CALLS} more" if len(row.calls) > _CALLS else "")
    told = row.divergence
    where: list[str | int] = ["-", "-"] if told is None else [told.left_row, told.at]
    return [row.index, row.participant, calls, row.tokens, row.trained, row.open_reason, *where]


def _print_divergence(out: Console, row: RowLine) -> None:
    told = row.divergence
    if told is None:
        return
    who = "not sampled" if told.sampled_by is None else f"sampled by call {told.sampled_by}"
    out.print()
    out.print(cell(f"row {row.index} left row {told.left_row} at token {told.at} ({who} there): {row.open_reason}", "bold"))
    for label, excerpt in (("  both", told.shared), ("  row", told.held), ("  prompt", told.prompt)):
        out.print(cell(f"{label:<10}{_excerpt(excerpt)}"), soft_wrap=not out.is_terminal)


def _excerpt(excerpt: Excerpt) -> str:
    if not excerpt.token_ids:
        return "(ends here)"
    return " ".join(map(str, excerpt.token_ids)) if excerpt.text is None else plain(excerpt.text, limit=_TEXT)
