"""Commands that carry events between ledgers: export, check-export, push, pull. Writes files, databases and the terminal."""

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ledger.cli_seal import verifier_key
from ledger.cli_settings import asked_settings, open_asked
from ledger.errors import ExportFault, PushRefused, SettingsError, UnknownEventKind
from ledger.interchange.carried import Progress as Report
from ledger.interchange.carried import Source
from ledger.interchange.file_source import FileSource
from ledger.interchange.ledger_source import Kept, LedgerSource
from ledger.interchange.native import export as write_export
from ledger.interchange.native_check import Checked
from ledger.interchange.native_check import check_export as check_file
from ledger.interchange.push import Pushed
from ledger.interchange.push import push as push_source
from ledger.interchange.records import SUFFIXES
from ledger.ledger import Guards, LedgerHandle, open_ledger
from ledger.proof import KeyFault, parse_key
from ledger.seal_files import seal_files
from ledger.settings import Settings
from ledger.subjects import read_kek
from ledger.terminal import cell, console, print_json
from ledger.upcast import CLASSES

Format = Literal["jsonl", "parquet"]
AsJson = Annotated[bool, typer.Option("--json", help="The result as one JSON object.")]
Key = Annotated[str, typer.Option(help="Verifier key of the log that you trust, or a file that holds it.")]
WithKeys = Annotated[
    bool, typer.Option("--with-keys", help="Let the salts and keys of subjects travel, so that their text can be read there.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, write nothing, say what would be pushed.")]
KekFile = Annotated[
    Path | None, typer.Option("--kek-file", help="File with the key around the subjects' keys at URL, where those are wrapped.")
]
Url = Annotated[str, typer.Argument(metavar="URL", help="postgresql://… of the other ledger's database.")]
NAMES_SHOWN = 10


def add_to(app: typer.Typer) -> None:
    """Register this module's commands."""
    for command in (export, check_export, push, pull):
        app.command()(command)


def export(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help=f"Ends in {', '.join(SUFFIXES)}.")],
    *,
    since: Annotated[int, typer.Option(min=0, help="Position after which to begin.")] = 0,
    until: Annotated[int | None, typer.Option(min=1, help="Last position; without it the last one that is sealed.")] = None,
    kinds: Annotated[list[str] | None, typer.Option(help="Kind of event to keep; may be repeated.")] = None,
    stream: Annotated[list[str] | None, typer.Option(help="Stream to keep, such as rollout-<id>; may be repeated.")] = None,
    project: Annotated[str | None, typer.Option(help="Keep the events of one project.")] = None,
    form: Annotated[Format | None, typer.Option("--format", help="Format, where the name of the file does not say it.")] = None,
    with_keys: WithKeys = False,
    as_json: AsJson = False,
) -> None:
    """Write sealed events, with proofs, blobs and tokens, to a file that anyone with the key can check."""
    for name in kinds or []:
        if name not in CLASSES:
            raise UnknownEventKind(f"event kind {name!r} is not known to this release; it knows {', '.join(sorted(CLASSES))}")
    if not file.name.endswith(SUFFIXES) and form is not None:
        file = file.with_name(f"{file.name}.{form}")
    elif form is not None and f".{form}" not in file.name:
        raise ExportFault(f"{file.name} is not named as {form}; allowed: {', '.join(SUFFIXES)}")
    keep = Kept(project, tuple(kinds or ()), tuple(stream or ()))
    with open_asked(ctx) as ledger, _bar("export") as report:
        source = LedgerSource(ledger, since=since, until=until, keep=keep, with_keys=with_keys)
        done = write_export(source, file, progress=report)
    if as_json:
        print_json({"file": str(file), **dataclasses.asdict(done)})
        return
    out = console()
    out.print(
        cell(f"{file}: {done.events} events of ({done.since}, {done.until}], {done.blobs} blobs, {done.streams} streams"), soft_wrap=True
    )
    out.print(cell(f"under the checkpoint of {source.head.origin} over {done.size} events; sha256 {done.sha256}"), soft_wrap=True)


def check_export(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="What `tally export` wrote.")],
    *,
    key: Key,
    as_json: AsJson = False,
) -> None:
    """Check every record of an export without a database; exit code 1 with the first that does not fit."""
    try:
        found = check_file(file, _key(key))
    except ExportFault as error:
        if as_json:
            print_json({"valid": False, "fault": str(error)})
        else:
            console().print(cell(f"INVALID: {error}", "bold red"), soft_wrap=True)
        raise typer.Exit(1) from None
    if as_json:
        print_json({"valid": True, **dataclasses.asdict(found), "head": found.head.model_dump()})
        return
    _print_checked(found)


def push(
    ctx: typer.Context,
    url: Url,
    *,
    key: Annotated[
        str | None, typer.Option(help="Verifier key of the log, or a file that holds it; without it that of the signing key here.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--from", exists=True, dir_okay=False, help="Push this export in place of the ledger; needs --key.")
    ] = None,
    with_keys: WithKeys = False,
    kek_file: KekFile = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Push this ledger, up to its newest checkpoint, into the one at URL."""
    settings, trusted = asked_settings(ctx), None if key is None else _key(key)
    if file is not None:
        if trusted is None:
            raise SettingsError("--from without --key; allowed: with the verifier key of the log in the file, from elsewhere than the file")
        with _other(url, settings, kek_file) as target:
            _run("push", FileSource(file, trusted), target, trusted, dry_run=dry_run, as_json=as_json)
        return
    with open_asked(ctx) as ledger, _other(url, settings, kek_file) as target:
        source = LedgerSource(ledger, with_keys=with_keys)
        own = verifier_key(ledger, seal_files(settings)) if trusted is None else trusted
        _run("push", source, target, own, dry_run=dry_run, as_json=as_json)


def pull(
    ctx: typer.Context,
    url: Url,
    *,
    key: Key,
    with_keys: WithKeys = False,
    kek_file: KekFile = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Pull the ledger at URL, up to its newest checkpoint, into this one."""
    trusted = _key(key)
    with open_asked(ctx) as ledger, _other(url, asked_settings(ctx), kek_file) as source:
        _run("pull", LedgerSource(source, with_keys=with_keys), ledger, trusted, dry_run=dry_run, as_json=as_json)


def _run(verb: str, source: Source, target: LedgerHandle, key: str, *, dry_run: bool, as_json: bool) -> None:
    try:
        with _bar(verb) as report:
            told = push_source(source, target, key=key, dry_run=dry_run, progress=report)
    except PushRefused as error:
        if as_json:
            print_json({"status": "refused", "fault": str(error), "kind": type(error).__name__})
        else:
            console().print(cell(f"REFUSED: {error}", "bold red"), soft_wrap=True)
        raise typer.Exit(1) from None
    if as_json:
        print_json({**dataclasses.asdict(told), "kinds": dict(told.kinds)})
        return
    _print_pushed(told, told.status.replace("push", verb))


def _print_pushed(told: Pushed, status: str) -> None:
    out = console()
    out.print(cell(f"{status}: ledger {told.ledger_id}, checkpoint over {told.size} events, root {told.root}"), soft_wrap=True)
    if told.status == "source is behind":
        out.print(f"{told.held} events of it are there already")
        return
    out.print(f"{told.held} events were there before, {told.events} {'would be' if told.status == 'would push' else 'are'} new")
    for kind, count in told.kinds:
        out.print(f"  {kind} {count}")
    counts = {"blobs": told.blobs, "token packs": told.packs, "calls with staged tokens": told.staged_calls, "keys of subjects": told.keys,
              "destroyed subjects": told.destroyed, "transactions tried again": told.retries}  # fmt: skip
    shown = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    if shown:
        out.print(f"new as well: {shown}")


def _print_checked(found: Checked) -> None:
    out, head = console(), found.head
    proved = (
        f"all of ({head.since}, {head.until}]"
        if found.complete
        else "these events were there, not that no other was; complete are the whole streams"
    )
    out.print(cell("VALID", "bold green"))
    out.print(
        cell(f"{found.events} events of {head.origin}, under its checkpoint over {found.size} events, root {found.root}"), soft_wrap=True
    )
    out.print(f"proved: {proved}")
    for name, streams in (("whole streams", found.whole_streams), ("cut streams", found.cut_streams)):
        more = "" if len(streams) <= NAMES_SHOWN else f" and {len(streams) - NAMES_SHOWN} more"
        out.print(cell(f"{name}: {len(streams)}{': ' if streams else ''}{', '.join(streams[:NAMES_SHOWN])}{more}"), soft_wrap=True)
    out.print(f"blobs: {found.blobs}, of which {found.unread_blobs} are kept under keys that are not in the file")


def _key(given: str) -> str:
    path = Path(given)
    text = path.read_text().strip() if len(given) < 4096 and path.is_file() else given.strip()
    try:
        parse_key(text)
    except KeyFault as error:
        raise SettingsError(f"--key: {error}") from error
    return text


def _other(url: str, settings: Settings, kek_file: Path | None) -> LedgerHandle:
    checked = Settings(data_dir=settings.data_dir, database_url=url, project=settings.project, actor=settings.actor)
    assert checked.database_url is not None
    guards = Guards(kek=read_kek(kek_file))
    return open_ledger(checked.database_url, project=settings.project, actor_id=settings.actor, pool_size=4, guards=guards)


@contextmanager
def _bar(what: str) -> Iterator[Report]:
    columns: Any = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(error=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
