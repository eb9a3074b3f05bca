"""The command `tally`: database, migration, reading and verification here, the commands of other packages through entry points."""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer

from ledger import cli_exchange, cli_guard, cli_operate, cli_read, cli_rebuild, cli_recall, cli_seal, cli_tokens, cli_verify, embedded
from ledger.cli_settings import asked_settings
from ledger.connect import migrate as migrate_database
from ledger.errors import SettingsError, TallyError
from ledger.revisions import head_revision
from ledger.settings import Settings
from ledger.terminal import cell, console, plain

GROUP = "tallystick.commands"
app = typer.Typer(
    name="tally", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="The ledger of agentic RL: what was sampled, what judged it, and what came of it.",
)  # fmt: skip
database = typer.Typer(no_args_is_help=True, help="The embedded PostgreSQL server.")
app.add_typer(database, name="db")
cli_read.add_to(app)
cli_exchange.add_to(app)
cli_tokens.add_to(app)
cli_operate.add_to(app)
cli_recall.add_to(app)
cli_guard.add_to(app)
cli_rebuild.add_to(app)
cli_seal.add_to(app)
cli_verify.add_to(app)


@app.callback()
def root() -> None:
    """Settings come from the environment: TALLY_DATA_DIR, TALLY_DATABASE_URL, TALLY_PROJECT, TALLY_ACTOR."""


@database.command("start")
def start(ctx: typer.Context) -> None:
    """Start the embedded server, or attach to it when it runs."""
    settings = _embedded_settings(ctx)
    server = embedded.start(settings.data_dir / "postgres", say=_say)
    console().print(f"PostgreSQL {server.version} runs on {server.host}:{server.port}")


@database.command("stop")
def stop(ctx: typer.Context) -> None:
    """Stop the embedded server."""
    settings = _embedded_settings(ctx)
    stopped = embedded.stop(settings.data_dir / "postgres", say=_say)
    console().print("stopped" if stopped else "was not running")


@database.command("status")
def status(ctx: typer.Context) -> None:
    """Say what is known of the embedded server; exit code 1 when it does not run."""
    found = embedded.status(_embedded_settings(ctx).data_dir / "postgres")
    where = "" if found.port is None else f" on port {found.port}, pid {found.pid}"
    console().print(cell(f"{found.state}{where}: {found.detail}"))
    if found.state != "running":
        raise typer.Exit(1)


@app.command()
def migrate(ctx: typer.Context) -> None:
    """Bring the database to this release's schema."""
    migrate_database(asked_settings(ctx))
    console().print(f"the database is at revision {head_revision()}")


def main() -> None:
    """Run the command line of this process and exit with its code."""
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _let_go_of_output()
    sys.exit(code)


def run(arguments: Sequence[str], *, settings: Settings | None = None) -> int:
    """The exit code of a command line: 0, 1 when what was asked about does not fit, 2 for misuse, 130 for Ctrl-C.

    Args:
        arguments: after the name of the command.
        settings: in place of those of the environment.
    """
    try:
        _load_commands(arguments)
        app(list(arguments), prog_name="tally", obj=settings)
    except TallyError as error:
        console(error=True).print(cell(f"{type(error).__name__}: {error}"), soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        console(error=True).print("interrupted")
        return 130
    except BrokenPipeError:
        _let_go_of_output()
        return 0
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    return 0


def _let_go_of_output() -> None:
    # The reader of a pipe has gone; without this the interpreter complains when it flushes at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def load_all() -> None:
    """Add the commands of all installed packages, for a page that lists them."""
    _load_commands([])


def _load_commands(arguments: Sequence[str]) -> None:
    """Add the commands of other packages: the one that is asked for, or all of them for a help page or an unknown name."""
    known = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups if group.name is not None}
    found: dict[str, EntryPoint] = {point.name: point for point in entry_points(group=GROUP) if point.name not in known}
    asked = next((argument for argument in arguments if not argument.startswith("-")), None)
    if asked in known:
        return
    for name in [asked] if asked in found else sorted(found):
        try:
            loaded: Any = found[str(name)].load()
        except ImportError as error:
            # The other commands, which may be needed to find out why, go on working.
            _say(f"command {name!r} of {found[str(name)].value} cannot be loaded: {error}")
            continue
        if isinstance(loaded, typer.Typer):
            app.add_typer(loaded, name=name)
        else:
            app.command(name)(loaded)
    # In one order, whichever was asked for first in this process.
    app.registered_commands[_OWN:] = sorted(app.registered_commands[_OWN:], key=lambda command: str(command.name))


_OWN = len(app.registered_commands)
"""Commands of this package, which stand before all others."""


def _embedded_settings(ctx: typer.Context) -> Settings:
    settings = asked_settings(ctx)
    if settings.database_url is not None:
        raise SettingsError("TALLY_DATABASE_URL names a server that is not ours to start or stop; unset it to use the embedded one")
    return settings


def _say(line: str) -> None:
    console(error=True).print(plain(line), style="dim")


if __name__ == "__main__":
    main()
