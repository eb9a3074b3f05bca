"""The group of commands `tally audit`; each subcommand has a module of its own, which loads what is heavy when it is called."""

import typer

from audit.claims_command import claims
from audit.scan_command import scan_command

audit = typer.Typer(no_args_is_help=True, help="Whose fault a failure was, and what can be believed.")
audit.add_typer(claims, name="claims")
audit.command("scan")(scan_command)


@audit.callback()
def _audit() -> None:
    """Whose fault a failure was, and what can be believed."""
