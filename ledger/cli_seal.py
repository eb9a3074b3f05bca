"""Commands that seal and prove: seal, key, checkpoint, prove. Writes checkpoints, proof files and the terminal."""

import time
from pathlib import Path
from typing import Annotated

import typer

from ledger import seal_files
from ledger.checkpoint import vkey
from ledger.cli_settings import asked_settings, open_asked
from ledger.errors import NotSealed, SealRefused, TallyError
from ledger.ledger import LedgerHandle
from ledger.proof import Checkpoint, b64
from ledger.prove import prove_event, resolve_event, write_proof
from ledger.seal import Sealer, current_origin, ensure_key, newest, published, sealer
from ledger.seal_files import SealFiles
from ledger.seal_fork import fork as fork_log
from ledger.terminal import cell, console, print_json

Witness = Annotated[Path | None, typer.Option("--witness", help="File of published checkpoints; by default that of the settings.")]


def add_to(app: typer.Typer) -> None:
    """Register this module's commands."""
    for command in (seal, key, checkpoint, prove):
        app.command()(command)


def seal(
    ctx: typer.Context,
    *,
    init: Annotated[bool, typer.Option("--init", help="Only make the signing key, and print its verifier key.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Seal what is there and end.")] = False,
    every: Annotated[float, typer.Option(min=0.05, help="Seconds between two checkpoints.")] = 5.0,
    fork: Annotated[bool, typer.Option("--fork", help="Go on under a new name after a restore lost sealed events.")] = False,
    witness: Witness = None,
) -> None:
    """Sign a checkpoint over all events, again and again until Ctrl-C; exit code 1 when signing would contradict a published one."""
    files = _files(ctx, witness)
    with open_asked(ctx) as ledger:
        try:
            if init:
                _print_key(ledger, files, make=True)
            elif fork:
                _print_head(fork_log(ledger, files))
            else:
                with sealer(ledger, files) as own:
                    _seal_on(own, every=None if once else every)
        except SealRefused as error:
            console(error=True).print(cell(f"REFUSED: {error}", "bold red"), soft_wrap=True)
            raise typer.Exit(1) from error


def key(ctx: typer.Context) -> None:
    """Print the verifier key, with which anybody checks checkpoints and proofs."""
    with open_asked(ctx) as ledger:
        _print_key(ledger, _files(ctx, None), make=False)


def checkpoint(ctx: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False) -> None:
    """Print the newest checkpoint, as the note that was signed."""
    with open_asked(ctx) as ledger, ledger.connection() as conn:
        last = newest(conn)
    if last is None:
        raise NotSealed("no checkpoint yet; run `tally seal --once`")
    if as_json:
        print_json({"origin": last.head.origin, "size": last.head.size, "root": b64(last.head.root), "note": last.note})
    else:
        typer.echo(last.note, nl=False)


def prove(
    ctx: typer.Context,
    ident: Annotated[
        str,
        typer.Argument(metavar="ID", help="Id of an event, a reward, a verdict or a rollout, or a beginning of it that no other shares."),
    ],
    *,
    out: Annotated[Path | None, typer.Option("--out", help="File to write; the terminal without it.")] = None,
    witness: Witness = None,
) -> None:
    """Write the proof that the ledger holds an event, for `ledger/proof.py` to check anywhere."""
    files = _files(ctx, witness)
    if witness is not None and not witness.exists():
        raise TallyError(f"no witness file {witness}")
    notes = [] if files.witness is None else seal_files.read_notes(files.witness)
    with open_asked(ctx) as ledger:
        event_id = resolve_event(ledger, ident)
        with ledger.connection() as conn:
            proof = prove_event(conn, event_id, notes)
    text = write_proof(proof)
    if out is None:
        typer.echo(text, nl=False)
        return
    out.write_text(text, encoding="utf-8")
    size = proof.checkpoint.split("\n")[1]
    console().print(cell(f"{out}: {proof.leaf.kind} in {proof.leaf.stream} is event {proof.index + 1} of {size}"))


def _files(ctx: typer.Context, witness: Path | None) -> SealFiles:
    files = seal_files.seal_files(asked_settings(ctx))
    return files if witness is None else SealFiles(files.key, witness)


def _seal_on(own: Sealer, *, every: float | None) -> None:
    made = own.seal()
    if made is None:
        last = newest(own.conn)
        console().print(f"nothing new; sealed up to {0 if last is None else last.head.size}")
    while True:
        if made is not None:
            _print_head(made)
        if every is None:
            return
        time.sleep(every)
        made = own.seal()


def _print_head(head: Checkpoint) -> None:
    console().print(cell(f"sealed {head.size} events of {head.origin}, root {b64(head.root)}"), soft_wrap=True)


def _print_key(ledger: LedgerHandle, files: SealFiles, *, make: bool) -> None:
    with ledger.connection() as conn:
        own = ensure_key(conn, files) if make else seal_files.read_key(files.key)
        origin = current_origin(ledger, published(conn, files, own))
    typer.echo(vkey(origin, own.public_key()))
