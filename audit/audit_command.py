"""The group of commands `tally audit`; each subcommand has a module of its own, which loads what is heavy when it is called."""

import typer

from audit.verifier_command import counterexample, verifier

audit = typer.Typer(no_args_is_help=True, help="Whose fault a failure was, and what can be believed.")


@audit.callback()
def _audit() -> None:
    """Whose fault a failure was, and what can be believed."""


audit.command("verifier")(verifier)
audit.command("counterexample")(counterexample)
