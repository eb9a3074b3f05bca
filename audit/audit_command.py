"""The group of commands `tally audit`; each subcommand has a module of its own, which loads what is heavy when it is called."""

import typer

from audit.benchmark_command import benchmark

audit = typer.Typer(no_args_is_help=True, help="Whose fault a failure was, and what can be believed.")


@audit.callback()
def _audit() -> None:
    """Whose fault a failure was, and what can be believed."""


audit.command("benchmark")(benchmark)
