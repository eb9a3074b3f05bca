"""The commands `roles`, `shred` and `subjects`: who may do what, and what is forgotten. Writes the database, deletes files."""

import dataclasses
import os
from pathlib import Path
from typing import Annotated

import psycopg
import typer

from ledger import subjects as subject_store
from ledger.cli_settings import asked_settings, open_asked
from ledger.connect import database_url
from ledger.errors import LedgerUnavailable, RoleError
from ledger.leftovers import delete_derived, leftovers
from ledger.roles import Login, make_roles
from ledger.shred import REASONS, shred
from ledger.terminal import cell, console, print_json, table

AsJson = Annotated[bool, typer.Option("--json", help="The answer as one JSON object a line.")]


def add_to(app: typer.Typer) -> None:
    """Register this module's commands."""
    app.command("roles")(roles)
    app.command("shred")(shred_subject)
    app.command("subjects")(list_subjects)


def roles(
    ctx: typer.Context,
    *,
    prefix: Annotated[str, typer.Option(help="Of the roles' names; each ledger of a cluster needs its own.")] = "tally",
    login: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE:NAME=VARIABLE", help="A login that acts as ROLE, its password from VARIABLE; may be repeated."),
    ] = None,
    text_for_readers: Annotated[
        bool, typer.Option("--reader-text/--no-reader-text", help="Whether readers may read subjects' text.")
    ] = True,
) -> None:
    """Make the roles owner, writer, reader, reviewer and auditor and grant them what each may do; run it after every migration."""
    logins = [_login(text) for text in login or []]
    settings = asked_settings(ctx)
    try:
        with psycopg.connect(database_url(settings)) as conn:
            made = make_roles(conn, prefix=prefix, logins=logins, text_for_readers=text_for_readers)
    except psycopg.OperationalError as error:
        raise LedgerUnavailable(str(error).strip()) from error
    out = console()
    for name in made.roles.values():
        out.print(cell(f"{name}: {'made' if name in made.new else 'was there'}"))
    out.print(f"granted on {made.relations} tables, views and sequences and on {made.functions} functions")
    for name in made.logins:
        out.print(cell(f"login {name}: password set"))


def shred_subject(
    ctx: typer.Context,
    subject: Annotated[
        str, typer.Argument(metavar="SUBJECT", help="Pseudonym, such as project:demo or actor:person-<id>; `tally subjects` lists them.")
    ],
    *,
    reason: Annotated[str, typer.Option(help=f"One of {', '.join(REASONS)}.")],
    delete_files: Annotated[
        bool, typer.Option("--delete-files", help="Delete exports and expectation pages, which can be made again.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Destroy a subject's key for good: its text and tokens become unreadable, every proof stays valid. There is no way back."""
    with open_asked(ctx) as ledger:
        done = shred(ledger, subject, reason=reason)
    found = leftovers(asked_settings(ctx).data_dir)
    gone = delete_derived(found) if delete_files else []
    left = [item for item in found if item not in gone]
    if as_json:
        print_json({**dataclasses.asdict(done), "deleted": [str(i.path) for i in gone], "left": [str(i.path) for i in left]})
        return
    out = console()
    when = f"{'was shredded before, at' if done.before else 'shredded at'} {done.destroyed_at:%Y-%m-%d %H:%M:%S %Z}"
    out.print(cell(f"{done.subject_id} {when}"))
    out.print(f"unreadable: {done.blobs} blobs ({done.bytes} bytes), tokens of {done.tokens} calls; names deleted: {done.names}")
    out.print(f"files that may hold its text: {len(gone)} deleted, {len(left)} left")
    for item in left:
        out.print(
            cell(f"  {item.kind}: {_short(item.path)} ({item.size} bytes){', can be made again' if item.derived else ''}"), soft_wrap=True
        )
    out.print("backups and WAL archives made before this still hold the key until they expire")


def list_subjects(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List subjects with what is stored under them, and when they were shredded."""
    with open_asked(ctx) as ledger, ledger.connection() as conn:
        gone = subject_store.destroyed(conn)
        rows = conn.execute("SELECT subject_id, count(*), sum(size)::bigint FROM blob GROUP BY subject_id ORDER BY subject_id").fetchall()
    known = {str(row[0]): (int(row[1]), int(row[2])) for row in rows}
    lines = [(name, *known.get(name, (0, 0)), gone.get(name)) for name in sorted({*known, *gone})]
    if as_json:
        for name, blobs, size, when in lines:
            print_json({"subject_id": name, "blobs": blobs, "bytes": size, "destroyed_at": None if when is None else when.isoformat()})
        return
    shown = [[name, blobs, size, "-" if when is None else f"{when:%Y-%m-%d %H:%M:%S}"] for name, blobs, size, when in lines]
    console().print(table(["subject", "blobs", "bytes", "shredded (UTC)"], shown))


def _login(text: str) -> Login:
    role, _, rest = text.partition(":")
    name, _, variable = rest.partition("=")
    if not role or not name or not variable:
        raise RoleError(f"login {text!r}; allowed: ROLE:NAME=VARIABLE, such as writer:gateway=GATEWAY_PASSWORD")
    password = os.environ.get(variable)
    if password is None:
        raise RoleError(f"login {name!r}: the environment has no variable {variable}; allowed: one that holds the password")
    return Login(name, role, password)


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
