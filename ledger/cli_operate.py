"""Commands that operate a ledger: doctor, backup, restore, metrics. Writes to the terminal, folders and databases."""

import dataclasses
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from ledger.backup import backup as make_backup
from ledger.backup import export_key
from ledger.cli_settings import asked_settings, open_asked
from ledger.connect import database_url
from ledger.doctor import examine
from ledger.errors import SettingsError
from ledger.ids import utc_now
from ledger.log_root import LogProof
from ledger.restore import check as check_backup
from ledger.restore import restore as restore_backup
from ledger.seal_files import seal_files
from ledger.seal_fork import fork as fork_log
from ledger.terminal import cell, console, print_json

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", file_okay=False, help="Folder of the backup.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "unknown": "dim"}


def add_to(app: typer.Typer) -> None:
    """Register this module's commands."""
    for command in (doctor, backup, restore, metrics):
        app.command()(command)


def doctor(
    ctx: typer.Context,
    deep: Annotated[bool, typer.Option("--deep", help="Compare every index with its table too; reads all of both.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look the deployment over; exit code 1 when something is broken, 0 with warnings."""
    checks = examine(asked_settings(ctx), now=utc_now, deep=deep)
    broken = [check for check in checks if check.status == "fail"]
    if as_json:
        print_json({"broken": bool(broken), "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        out = console()
        for check in checks:
            out.print(cell(f"{check.status:8}", _STYLES[check.status]) + cell(f"{check.name:24} {check.measured}"), soft_wrap=True)
            if check.status != "ok" and check.advice:
                out.print(cell(f"{'':33}-> {check.advice}"), soft_wrap=True)
        counts = ", ".join(f"{sum(check.status == status for check in checks)} {status}" for status in _STYLES)
        out.print(cell(counts, "bold"))
    if broken:
        raise typer.Exit(1)


def backup(
    ctx: typer.Context,
    folder: Annotated[Path | None, typer.Argument(metavar="[FOLDER]", help="To be made; it must not exist.")] = None,
    key: Annotated[Path | None, typer.Option(help="Copy the signing key to this new file instead; keep it apart from backups.")] = None,
    as_json: AsJson = False,
) -> None:
    """Copy the ledger, as of one moment, into a folder; the signing key is not in it."""
    settings = asked_settings(ctx)
    if (folder is None) == (key is None):
        raise SettingsError("give either a FOLDER for a backup or --key FILE for the signing key")
    if key is not None:
        console().print(cell(f"the signing key is in {export_key(settings, key)}; keep it apart from backups"), soft_wrap=True)
        return
    assert folder is not None
    with open_asked(ctx) as ledger, _bar("backup") as progress:
        manifest = make_backup(ledger, settings, folder, now=utc_now(), progress=progress)
    if as_json:
        print_json({"folder": str(folder), "bytes": manifest.bytes, **dataclasses.asdict(manifest)})
        return
    out = console()
    out.print(
        cell(f"{folder}: {len(manifest.files)} files, {manifest.bytes} bytes, {manifest.tables['event'].rows} events"), soft_wrap=True
    )
    _print_log(manifest.log)
    for item in manifest.left_out:
        out.print(cell(f"left out: {item}", "yellow"), soft_wrap=True)


def restore(
    ctx: typer.Context,
    folder: Folder,
    *,
    check: Annotated[bool, typer.Option("--check", help="Load nothing; say whether the ledger here continues the backup's log.")] = False,
    dagster: Annotated[bool, typer.Option("--dagster/--no-dagster", help="Restore Dagster's database too.")] = True,
    fork: Annotated[
        bool, typer.Option("--fork", help="Go on sealing under a new name: checkpoints beyond this backup were published.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make the ledger of a backup in an empty database, proved to be the same log.

    Where checkpoints beyond the backup were published, sealing it refuses until it goes on under a new name, which --fork begins.
    """
    settings = asked_settings(ctx)
    if check:
        with open_asked(ctx) as ledger, _bar("check") as progress:
            manifest = check_backup(folder, ledger, progress=progress)
        kept: tuple[str, ...] = ()
        said = "the files are whole, and the ledger here continues this log"
    else:
        with _bar("restore") as progress:
            restored = restore_backup(folder, database_url(settings), settings, dagster=dagster, progress=progress)
        manifest, kept = restored.manifest, restored.kept
        said = f"restored {manifest.tables['event'].rows} events; the log is the one that was backed up {manifest.made_at}"
        if fork:
            with open_asked(ctx) as ledger:
                sealed = fork_log(ledger, seal_files(settings))
            said += f"; it goes on as {sealed.origin} from position {sealed.size}"
    if as_json:
        print_json({"checked_only": check, "log": dataclasses.asdict(manifest.log), "kept": kept, "left_out": manifest.left_out})
        return
    out = console()
    out.print(cell(said, "green"), soft_wrap=True)
    _print_log(manifest.log)
    for name in kept:
        out.print(cell(f"kept, it differs from the backup's: {name}", "yellow"), soft_wrap=True)


def metrics(
    ctx: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free one.")] = 9464,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Serve the ledger's figures to Prometheus until interrupted."""
    from ledger.metrics import serve

    with open_asked(ctx) as ledger:
        try:
            bound, stop = serve(ledger, port=port, host=host)
        except OSError as error:
            raise SettingsError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        try:
            # Whoever starts this in the background may have left interrupts ignored.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            console().print(f"metrics on http://{host}:{bound}/metrics")
            threading.Event().wait()
        finally:
            stop()


def _print_log(log: LogProof) -> None:
    out = console()
    out.print(cell(f"ledger {log.ledger_id}, size {log.size}, root {log.root}"), soft_wrap=True)
    if log.checkpoint is not None:
        fits = "fits" if log.checkpoint.fits else "DOES NOT FIT"
        out.print(cell(f"checkpoint {log.checkpoint.origin} of {log.checkpoint.size}: {fits}", "" if log.checkpoint.fits else "bold red"))


class _bar:
    """A progress bar of bytes on standard error; entered, it is the function that moves it."""

    def __init__(self, what: str) -> None:
        out = console(error=True)
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=out, transient=True,
            disable=not out.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task(what, total=None)

    def __enter__(self) -> Callable[[int, int], None]:
        self._bar.start()
        return lambda done, total: self._bar.update(self._task, completed=done, total=total)

    def __exit__(self, *_: Any) -> None:
        self._bar.stop()
