"""The command that verifies a whole ledger. Writes to the terminal."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ledger import proof, seal_files
from ledger.cli_settings import asked_settings, open_asked
from ledger.errors import CheckpointError, TallyError
from ledger.proof import KeyFault, VerifierKey
from ledger.seal import default_origin
from ledger.terminal import cell, console, print_json
from ledger.verify import Report
from ledger.verify import verify as verify_ledger

PROBLEMS_SHOWN = 20


def add_to(app: typer.Typer) -> None:
    """Register this module's command."""
    app.command()(verify)


def verify(
    ctx: typer.Context,
    *,
    witness: Annotated[
        list[Path] | None, typer.Option(help="File of checkpoints kept outside; may be repeated. By default that of the settings.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Verifier key, or a file that holds it; by default that of the signing key, if it is here.")
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Leave out the content of blobs and tokens.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The report as one JSON object.")] = False,
) -> None:
    """Derive everything that is hashed, signed or stored twice again; exit code 1 with the first event that does not fit."""
    files = seal_files.seal_files(asked_settings(ctx))
    asked = witness if witness is not None else [path for path in [files.witness] if path is not None and path.exists()]
    outside = [(str(path), note) for path in asked for note in _notes(path)]
    with open_asked(ctx) as ledger, _bar() as bar:
        trusted = _key(key, files.key, default_origin(ledger.ledger_id))
        task = bar.add_task("verify", total=None)
        report = verify_ledger(
            ledger, outside=outside, key=trusted, fast=fast,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )  # fmt: skip
    if as_json:
        _print_json(report)
    else:
        _print(report)
    if not report.intact:
        raise typer.Exit(1)


def _notes(path: Path) -> list[str]:
    if not path.exists():
        raise TallyError(f"no witness file {path}")
    return seal_files.read_notes(path)


def _key(given: str | None, own: Path, origin: str) -> VerifierKey | None:
    if given is None:
        return seal_files.named(seal_files.read_key(own), origin) if own.exists() else None
    try:
        return proof.parse_key(Path(given).read_text(encoding="utf-8") if Path(given).is_file() else given)
    except KeyFault as error:
        raise CheckpointError(str(error)) from error


def _print_json(report: Report) -> None:
    problems = [{"position": p.position, "subject": p.subject, "fault": p.fault} for p in report.problems]
    names = (
        "events", "position", "blobs", "shredded", "token_arrays", "tiles", "checkpoints", "outside", "outside_size", "forks", "lost",
        "signed", "skipped",
    )  # fmt: skip
    print_json({"intact": report.intact, **{name: getattr(report, name) for name in names}, "problems": problems})


def _print(report: Report) -> None:
    out = console()
    counts = f"{report.events} events up to position {report.position}, {report.blobs} blobs, {report.token_arrays} token arrays"
    if report.shredded:
        counts += f", {report.shredded} blobs of destroyed subjects that nobody can read"
    out.print(
        cell(f"{'intact' if report.intact else 'NOT INTACT'}: {counts}", "bold green" if report.intact else "bold red"), soft_wrap=True
    )
    signatures = "signatures checked" if report.signed else "signatures not checked, for want of a key (--key)"
    out.print(cell(f"sealed: {report.checkpoints} checkpoints, {report.tiles} full tiles, {signatures}"), soft_wrap=True)
    if report.outside:
        out.print(
            cell(
                f"outside: {report.outside} checkpoints; the largest that agrees covers {report.outside_size} of {report.position} events"
            ),
            soft_wrap=True,
        )
    else:
        out.print(
            cell("outside: no checkpoint was given (--witness), so whoever wrote database and tiles anew is not seen"), soft_wrap=True
        )
    for origin in report.forks:
        out.print(cell(f"forked: the log goes on as {origin}; checkpoints given up by forks: {report.lost}"), soft_wrap=True)
    if report.skipped:
        out.print(cell(f"left out: the content of {' and '.join(report.skipped)}"))
    for index, problem in enumerate(report.problems[:PROBLEMS_SHOWN]):
        place = "" if problem.position is None else f"position {problem.position}, "
        out.print(cell(f"{'first' if index == 0 else 'then'}: {place}{problem.subject}: {problem.fault}"), soft_wrap=True)
    if len(report.problems) > PROBLEMS_SHOWN:
        out.print(f"and {len(report.problems) - PROBLEMS_SHOWN} more; --json lists all")


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console(error=True),
        transient=True, disable=not sys.stderr.isatty(),
    )  # fmt: skip
